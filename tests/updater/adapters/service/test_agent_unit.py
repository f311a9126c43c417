"""Where the agent's unit lies on each service manager, and what a release may say it should be."""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from journeyman_updater.adapters.service.agent_unit import agent_unit
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.errors import HostError, Reason, ReleaseError
from journeyman_updater.model.unit import Unit
from journeyman_updater.ports import AgentUnit

ROOT = Path("/var/lib/state root")
PLIST = "dev.journeyman.agent.plist"


class Release:
    """A staged release that answers so, and remembers what it was asked."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.asked: list[tuple[tuple[str, ...], Path]] = []

    def ask(self, command: Sequence[str | Path], *, folder: Path) -> bytes:
        self.asked.append((tuple(map(str, command)), folder))
        return self.answer


def unit_on(service: str, folder: str = "", answer: bytes = b"") -> AgentUnit:
    return agent_unit(service, ROOT, SystemClock(), Release(answer).ask, service_folder=folder)


def plist(**more: object) -> bytes:
    """A list that launchd would take."""
    body: dict[str, object] = {"Label": "dev.journeyman.agent", "ProgramArguments": ["/bin/sh"], **more}
    return plistlib.dumps(body)


@pytest.mark.parametrize(
    ("service", "folder", "paths", "mode"),
    [
        ("none", "", {}, 0o644),
        ("systemd", "", {"dev.journeyman.agent.service": "/etc/systemd/system"}, 0o644),
        ("runit", "/srv/on/journeyman", dict.fromkeys(("run", "finish"), "/srv/sv/journeyman"), 0o755),
        ("launchd", "", {PLIST: "/Library/LaunchDaemons"}, 0o644),
        ("launchd-gui", "/Users/a b/Lists", {PLIST: "/Users/a b/Lists"}, 0o644),
    ],
)
def test_each_manager_has_its_place(service: str, folder: str, paths: dict[str, str], mode: int) -> None:
    """The updater knows by itself which files it may replace, and no release can name another."""
    unit = unit_on(service, folder)
    assert unit.paths() == {name: Path(place, name) for name, place in paths.items()}
    assert unit.mode == mode


def test_the_release_itself_is_asked_about_this_root() -> None:
    """Its own entry point is run in its tree, with the state root whose installation it shall look at."""
    wanted = Unit({"run": b"#!/bin/sh\n"})
    release, tree = Release(wanted.to_json()), Path("/versions/1.0.0-0123456789ab")
    unit = agent_unit("runit", ROOT, SystemClock(), release.ask, service_folder="/srv/on/journeyman")
    assert unit.render(tree) == wanted
    words = ("update", "unit", "--json", "--state-root", str(ROOT))
    assert release.asked == [((str(tree / "bin" / "journeyman"), *words), tree)]


def failing(command: Sequence[str | Path], *, folder: Path) -> bytes:
    raise ReleaseError(Reason.EXEC_CHECK_FAILED, "it ended with 78")


def test_a_release_that_does_not_answer_is_refused_and_not_rejected() -> None:
    """A setting that it cannot read is no evidence against it: nothing stops, and it is asked again later."""
    for unit in (unit_on("none", answer=b"hello"), agent_unit("none", ROOT, SystemClock(), failing)):
        with pytest.raises(HostError) as refused:
            unit.render(Path("/tree"))
        assert refused.value.reason is Reason.EXEC_CHECK_FAILED
        assert not refused.value.rejects


def reason_against(unit: AgentUnit, **files: bytes) -> Reason:
    with pytest.raises(HostError) as refused:
        unit.check(Unit({name.replace("_", "."): content for name, content in files.items()}))
    return refused.value.reason


def test_what_is_no_script_is_refused_on_runit(tmp_path: Path) -> None:
    """It would be executed in vain each second."""
    (tmp_path / "sv" / "journeyman").mkdir(parents=True)
    unit = unit_on("runit", str(tmp_path / "on" / "journeyman"))
    unit.check(Unit({"run": b"#!/bin/sh\n", "finish": b"#!/bin/sh\n"}))
    assert reason_against(unit, run=b"") is Reason.SELF_UPDATE_UNAVAILABLE


def test_a_list_that_launchd_would_ignore_in_part_is_refused(tmp_path: Path) -> None:
    """A misspelled key is ignored in silence by launchd, so it is looked at before."""
    unit = unit_on("launchd", str(tmp_path))
    name = PLIST.replace(".", "_")
    unit.check(Unit({PLIST: plist(KeepAlive=True)}))
    assert reason_against(unit, **{name: plist(KeepAlife=True)}) is Reason.SELF_UPDATE_UNAVAILABLE


def test_a_folder_that_cannot_be_written_is_seen_before_anything_stops(tmp_path: Path) -> None:
    """One that is not there cannot be written by anybody, root included."""
    unit = unit_on("runit", str(tmp_path / "on" / "journeyman"))
    assert reason_against(unit, run=b"#!/bin/sh\n") is Reason.NOT_WRITABLE


def test_marks_of_registrations_are_no_difference() -> None:
    """The list on the disk bears the mark of its registration, and is the same list."""
    unit = unit_on("launchd")
    lists = [plist(EnvironmentVariables={"JOURNEYMAN_UNIT": name}) for name in ("ab", "ab.1234", "cd.1234")]
    assert unit.is_same(lists[0], lists[1])
    assert not unit.is_same(lists[1], lists[2])
    assert not unit.is_same(lists[0], b"no list")

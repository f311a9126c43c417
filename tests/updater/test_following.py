"""A host that follows its control plane: real plane, real socket, and a clock that belongs to the test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.node import NodeFile
from journeyman_updater.core.postponement import turn_seconds
from journeyman_updater.core.window import parse_window
from journeyman_updater.errors import Reason, SourceError, UpdaterError
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.run import Ending, Prospect, Updater
from journeyman_updater.settings import Settings
from tests.support.killed_writer import kill_a_writer_of
from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, fleet_node, running_plane

pytestmark = pytest.mark.slow
ACTIVE, WANTED = parse_sha256("ab" * 32), parse_sha256("cd" * 32)
SETTINGS = Settings(start_spread_seconds=600, allow_unsigned=True)


@dataclass
class PatientClock(SystemClock):
    """The host's clock; a long wait is over at once, and is remembered with whether the lock was free."""

    root: StateRoot
    waits: list[tuple[float, bool]] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        is_free = False
        with suppress(UpdaterError), FlockLocks().hold(self.root.update_lock):
            is_free = True
        self.waits.append((seconds, is_free))


class Desk:
    """A state root that follows a plane."""

    def __init__(self, folder: Path, plane: RunningPlane) -> None:
        self.plane = plane
        self.root = StateRoot(folder / "state root")
        for path in (self.root.path, self.root.run, self.root.agent, self.root.versions):
            path.mkdir()
        node = NodeFile("desk", plane.url, token_file=str(plane.token_file))
        self.root.node_file.write_bytes(node.to_json())
        self.write(Spec(source="agentrelease"))
        self.clock = PatientClock(self.root)
        # The clock looks at the lock, which makes its file; that is none of the updater's doing.
        self.root.update_lock.touch()
        # The agent speaks for its host.
        self.root.last_beat_file.touch()

    def write(self, spec: Spec) -> None:
        status = Status(active=Slot(VersionId("0.1.0"), ACTIVE))
        self.root.state_file.write_bytes(StateDocument(spec, status).to_json())

    def updater(self, settings: Settings = SETTINGS) -> Updater:
        return Updater(self.root, settings, self.clock, lambda moment: moment.astimezone(UTC))

    def ask_for(self, sha256: str | None, url: str = "http://127.0.0.1:9/a.tar.gz") -> None:
        """The operator's side: writes an updateRequest, or clears it."""
        wish = None if sha256 is None else {"targetVersion": "0.2.0", "url": url, "sha256": sha256}
        with self.plane.client() as client:
            body = {"status": {"updateRequest": wish}}
            answer = client.patch(f"{FOREMAN}/fleetnodes/desk/status", json=body, headers=MERGE_PATCH)
            assert answer.is_success, answer.text

    def updating(self) -> list[dict[str, Any]]:
        """The condition `Updating`, if the node has one."""
        with self.plane.client() as client:
            node = client.get(f"{FOREMAN}/fleetnodes/desk").json()
        return [item for item in node["status"].get("conditions", ()) if item["type"] == "Updating"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with running_plane(tmp_path) as plane:
        with plane.client() as client:
            assert client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("desk")).is_success
        yield Desk(tmp_path, plane)


def test_a_host_waits_for_its_own_turn_once_and_lets_people_in(desk: Desk) -> None:
    """A new release is begun after this node's part of the spread, without the lock, and only once."""
    desk.ask_for(WANTED)
    outcome = desk.updater().run_once()
    assert (outcome.ending, outcome.reason) == (Ending.REFUSED, Reason.UNREACHABLE)
    turn = turn_seconds("desk", WANTED, spread_seconds=600)
    assert desk.clock.waits[0] == (turn, True)
    # What could not be had is fetched again without a turn; the other waits are pauses of the fetch.
    desk.clock.waits.clear()
    desk.updater().run_once()
    assert turn not in {seconds for seconds, _ in desk.clock.waits}


def test_a_person_waits_for_no_turn(desk: Desk) -> None:
    """`apply FILE` begins at once."""
    artifact = desk.root.path / "page.tar.gz"
    artifact.write_text("<html>")
    with pytest.raises(UpdaterError):
        desk.updater().apply_file(artifact)
    assert desk.clock.waits == []


def test_nothing_is_waited_for_where_nothing_would_begin(desk: Desk) -> None:
    """No turn for what runs already, for a closed window, and where no spread is set."""
    desk.ask_for(ACTIVE)
    assert desk.updater().run_once().ending is Ending.NOT_NEEDED
    desk.ask_for(WANTED)
    day = (datetime.now(UTC).weekday() + 3) % 7
    closed = f"{('Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun')[day]} 01:00-02:00"
    desk.write(Spec(source="agentrelease", window=closed))
    assert desk.updater().run_once().reason is Reason.OUTSIDE_WINDOW
    assert desk.clock.waits == []


def test_check_says_what_would_happen_and_changes_nothing(desk: Desk) -> None:
    """Each prospect is foretold from the plane's answer of this moment, and no file changes."""

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in desk.root.path.rglob("*") if path.is_file()}

    before = files()
    assert desk.updater().check().prospect is Prospect.NOTHING
    desk.ask_for(ACTIVE)
    assert desk.updater().check().prospect is Prospect.NOT_NEEDED
    desk.ask_for(WANTED)
    found = desk.updater().check()
    assert (found.prospect, found.bytes_to_fetch) == (Prospect.UPDATES, None)
    assert found.turn_seconds == turn_seconds("desk", WANTED, spread_seconds=600)
    signed = desk.updater(replace(SETTINGS, allow_unsigned=False, start_spread_seconds=0)).check()
    assert (signed.prospect, signed.reason) == (Prospect.REFUSED, Reason.UNREACHABLE)
    assert files() == before
    desk.write(Spec(source="off"))
    assert desk.updater().check().prospect is Prospect.OFF


def test_a_plane_that_cannot_be_asked_is_an_error_of_its_own(desk: Desk) -> None:
    """Neither `check` nor a run guesses what a control plane wants that does not answer."""
    desk.root.node_file.write_bytes(NodeFile("desk", "http://127.0.0.1:9").to_json())
    for ask in (desk.updater().check, desk.updater().run_once):
        with pytest.raises(SourceError) as caught:
            ask()
        assert caught.value.reason is Reason.UNREACHABLE
    assert desk.updater().last_check() is None


def test_the_last_check_is_known(desk: Desk) -> None:
    """Whether the updater still does its work shows in when it last asked, without a request as well."""
    assert desk.updater().last_check() is None
    desk.updater().run_once()
    checked = desk.updater().last_check()
    assert checked is not None
    assert abs((datetime.now(UTC) - checked).total_seconds()) < 60


def test_a_refusal_is_told_by_the_agent_or_for_a_silent_one(desk: Desk) -> None:
    """While the agent beats the node is left to it; after five silent minutes the updater writes itself."""
    desk.write(Spec(source="agentrelease", pin="0.1.0"))
    desk.ask_for(WANTED)
    assert desk.updater().run_once().reason is Reason.PINNED
    assert json.loads(desk.root.progress_file.read_bytes())["reason"] == "Pinned"
    assert desk.updating() == []
    stamp = datetime.now(UTC).timestamp() - 400
    os.utime(desk.root.last_beat_file, (stamp, stamp))
    desk.updater().run_once()
    [condition] = desk.updating()
    assert (condition["status"], condition["reason"]) == ("False", "Pinned")


def test_a_window_is_set_shown_and_lifted(desk: Desk) -> None:
    """The window is kept as it was written and journalled, and `None` lifts it."""
    updater = desk.updater()
    window = parse_window("Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00")
    updater.set_window(window)
    assert updater.document().spec.window == window.spelled
    assert updater.opening(window) is not None
    updater.set_window(None)
    assert updater.document().spec.window is None
    assert [record.detail["window"] for record in updater.history()] == [window.spelled, ""]


def test_a_plane_that_moved_is_asked_where_it_is_now(desk: Desk) -> None:
    """No address is kept: what node.json says at the moment of the question counts."""
    updater = desk.updater()
    here = desk.root.node_file.read_bytes()
    desk.root.node_file.write_bytes(NodeFile("desk", "http://127.0.0.1:9").to_json())
    with pytest.raises(SourceError):
        updater.run_once()
    desk.root.node_file.write_bytes(here)
    assert updater.run_once().ending is Ending.NOTHING


def test_a_host_whose_updates_are_off_does_not_even_ask(desk: Desk) -> None:
    """With the source off a standing request moves nothing, and the plane is not asked."""
    desk.write(Spec(source="off"))
    desk.ask_for(WANTED)
    assert desk.updater().run_once().ending is Ending.NOTHING
    assert desk.updater().last_check() is None
    assert desk.updater().history() == []


def test_what_a_killed_writer_has_left_goes_with_the_next_run(desk: Desk) -> None:
    """Settings and keys that were cut off at their writing leave nothing that stays."""
    lefts = [kill_a_writer_of(path) for path in (desk.root.updater_settings, desk.root.keys / "plane.pub")]
    desk.updater().run_once()
    assert not any(left.exists() for left in lefts)

"""The unit that starts the agent goes with the release, in a bottle; real managers are in tests/contracts."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman_updater.errors import Reason
from journeyman_updater.model.journal import Step
from journeyman_updater.model.unit import Unit
from journeyman_updater.steps.base import Limits
from journeyman_updater.transaction import Ending, Transaction
from tests.crash.scenarios import make_scenario
from tests.crash.world import World


class BareWorld(World):
    """The parent keeps the agent, and no file says how."""

    def paths(self) -> dict[str, Path]:
        return {}


def started_by(world: World) -> tuple[bytes, bytes]:
    """What is installed, and what the agent that runs was started by."""
    assert world.agent is not None
    return world.disk.read(world.unit_file), world.agent.unit


def test_a_release_is_tried_under_the_unit_that_it_brings(tmp_path: Path) -> None:
    """The first start of the trial is by the new unit, and the journal names the files that were replaced."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    assert world.update(scenario.wanted.request()).ending is Ending.COMMITTED
    assert started_by(world) == (scenario.wanted.unit, scenario.wanted.unit)
    assert world.starts == ["0.1.0", "0.2.0"]
    [record] = [each for each in world.tools().records.history() if each.step == Step.ACTIVATE]
    assert record.detail["unit"] == ["agent.unit"]


@pytest.mark.parametrize("behaviour", ["crash", "hang", "late", "mute", "stuck"])
def test_a_rollback_brings_the_old_unit_back(tmp_path: Path, behaviour: str) -> None:
    """Whoever started the old release again, in the end it runs by its own unit."""
    scenario = make_scenario(tmp_path, behaviour)
    world = scenario.begin(limits=Limits())
    assert world.update(scenario.wanted.request()).ending is Ending.ROLLED_BACK
    assert started_by(world) == (scenario.old[1].unit, scenario.old[1].unit)


def test_a_unit_that_starts_nothing_is_undone_within_75_seconds(tmp_path: Path) -> None:
    """Where nothing starts nobody counts starts: the updater goes back, and the release is not rejected."""
    scenario = make_scenario(tmp_path, "unstartable")
    world = scenario.begin(limits=Limits())
    before = world.seconds
    outcome = world.update(scenario.wanted.request())
    assert (outcome.ending, outcome.reason) == (Ending.ROLLED_BACK, Reason.RESTART_UNPROVEN)
    assert world.seconds - before <= 75
    assert started_by(world) == (scenario.old[1].unit, scenario.old[1].unit)
    assert not world.tools().records.load().status.has_rejected(scenario.wanted.sha256)


def test_a_boot_into_a_unit_that_starts_nothing_is_undone(tmp_path: Path) -> None:
    """After a reboot in the middle nothing runs, and the updater, which has a unit of its own, goes back."""
    scenario = make_scenario(tmp_path, "unstartable")
    world = scenario.begin()
    points = scenario.count_points()
    killed = scenario.killed(points.index("signal agent"))
    killed.disk.settle()
    world = killed.reboot(killed.disk.after_cut(lambda ways: 0))
    assert world.agent is None
    assert Transaction(world.tools()).recover().ending is Ending.ROLLED_BACK
    assert started_by(world) == (scenario.old[1].unit, scenario.old[1].unit)


def test_a_person_who_goes_back_gets_the_old_unit(tmp_path: Path) -> None:
    """What was installed under the previous release comes back with it."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.disk.write(world.unit_file, b"edited by hand\n")
    world.update(scenario.wanted.request())
    assert Transaction(world.tools()).roll_back().ending is Ending.COMMITTED
    assert started_by(world) == (b"edited by hand\n", b"edited by hand\n")


def test_a_release_without_the_question_runs_under_the_unit_that_is_there(tmp_path: Path) -> None:
    """A release from before releases had units is asked nothing, and changes nothing."""
    scenario = make_scenario(tmp_path, "good", unit_protocol=0)
    world = scenario.begin()
    assert world.update(scenario.wanted.request()).ending is Ending.COMMITTED
    assert started_by(world) == (scenario.old[1].unit, scenario.old[1].unit)
    assert "question release" not in world.disk.points


def test_a_host_without_a_service_manager_has_nothing_to_replace(tmp_path: Path) -> None:
    """Where no unit is installed none is asked for, and none appears."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.__class__ = BareWorld
    assert world.update(scenario.wanted.request()).ending is Ending.COMMITTED
    assert not world.disk.is_directory(world.root.units)
    assert "question release" not in world.disk.points


def test_any_bytes_can_be_put_back() -> None:
    """A unit that somebody has edited in another encoding survives being kept."""
    unit = Unit({"run": b"#!/bin/sh\n# caf\xe9\n\0", "finish": b""})
    assert Unit.from_json(unit.to_json()) == unit


@pytest.mark.parametrize("text", [b"", b"[]", b'{"format": 2}', b'{"format": 1, "files": {"run": 3}}'])
def test_what_is_no_unit_is_refused(text: bytes) -> None:
    """The answer of a release is judged before anything rests on it."""
    with pytest.raises(ValueError, match=r"unit|JSON|Expecting"):
        Unit.from_json(text)

"""Whole updates on a host in a bottle: the real guard and updater, simulated time and agents."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from journeyman_updater.errors import Reason
from journeyman_updater.model.journal import Step
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.steps.base import Limits
from journeyman_updater.transaction import Ending, Transaction
from tests.crash.disk import PowerCutError
from tests.crash.scenarios import Scenario, make_scenario
from tests.crash.world import World

REASONS = {
    "crash": Reason.CRASH_LOOP,
    "hang": Reason.NOT_READY,
    "late": Reason.UNHEALTHY,
    "mute": Reason.UNHEALTHY,
    "stuck": Reason.UNHEALTHY,
}


def kindly(ways: int) -> int:
    """All that was written had reached the platter."""
    return 0


def cruelly(ways: int) -> int:
    """Nothing had that was not flushed."""
    return 1


def status_of(world: World) -> Status:
    return StateDocument.from_json(world.disk.read(world.root.state_file)).status


def steps_of(world: World) -> list[str]:
    return [record.step for record in world.tools().records.history()]


def test_a_good_release_is_committed_with_one_restart(tmp_path: Path) -> None:
    """A good release becomes active, the one before it is kept, and the agent was restarted once."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    assert world.update(scenario.wanted.request()).ending is Ending.COMMITTED
    status = status_of(world)
    assert status.active is not None
    assert status.previous is not None
    assert (status.active.sha256, status.previous.sha256) == (scenario.wanted.sha256, scenario.old[1].sha256)
    assert status.sequence == scenario.wanted.sequence
    assert world.starts == ["0.1.0", "0.2.0"]
    update = ["fetch", "stage", "drain", "activate", "commit", "committed", "retire"]
    assert steps_of(world) == [*update, "renew", "renewed"]


@pytest.mark.parametrize("behaviour", REASONS)
@pytest.mark.parametrize("is_plane_up", [True, False])
def test_a_bad_release_is_undone_within_75_seconds(
    tmp_path: Path, behaviour: str, *, is_plane_up: bool
) -> None:
    """With the default deadlines and no control plane, a bad release is undone within 75 s of its start."""
    scenario = make_scenario(tmp_path, behaviour)
    world = scenario.begin(limits=Limits())
    world.is_plane_up = is_plane_up
    before = world.seconds
    outcome = world.update(scenario.wanted.request())
    assert (outcome.ending, outcome.reason) == (Ending.ROLLED_BACK, REASONS[behaviour])
    assert world.seconds - before <= 75
    assert world.agent is not None
    assert world.agent.release == scenario.old[1]
    assert status_of(world).has_rejected(scenario.wanted.sha256)


@pytest.mark.parametrize("behaviour", REASONS)
def test_after_a_rejection_nothing_happens_for_a_day(tmp_path: Path, behaviour: str) -> None:
    """In 24 h after a rejection with the request still there: no restart, no byte, no write."""
    scenario = make_scenario(tmp_path, behaviour)
    world = scenario.begin(limits=Limits())
    world.update(scenario.wanted.request())
    starts, fetched, points = list(world.starts), world.bytes_fetched, len(world.disk.points)
    for _ in range(24 * 12):
        assert world.update(scenario.wanted.request()).reason is Reason.DENYLISTED
        world.seconds += 300
    assert (world.starts, world.bytes_fetched, len(world.disk.points)) == (starts, fetched, points)


def test_a_good_release_goes_through_after_a_bad_one(tmp_path: Path) -> None:
    """A rejection is of one release and of no other."""
    bad = make_scenario(tmp_path / "bad", "crash")
    world = bad.begin()
    world.update(bad.wanted.request())
    good = build_next(bad, tmp_path, world)
    assert world.update(good.wanted.request()).ending is Ending.COMMITTED
    assert status_of(world).has_rejected(bad.wanted.sha256)


def build_next(scenario: Scenario, folder: Path, world: World) -> Scenario:
    """A good release with the same version and other bytes, as after a mended build."""
    again = make_scenario(folder / "mended", "good", filler=b"y")
    archive = scenario.root / "downloads" / f"{again.wanted.sha256}.tar.gz"
    archive.write_bytes(again.wanted.archive)
    world.releases = (*world.releases, again.wanted)
    return again


def test_a_good_release_in_an_outage_waits_and_is_committed_later(tmp_path: Path) -> None:
    """An unreachable API is inconclusive, costs no attempt, and the release is committed once it is back."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.is_plane_up = False
    outcome = world.update(scenario.wanted.request())
    assert (outcome.ending, outcome.reason) == (Ending.INCONCLUSIVE, Reason.UNREACHABLE)
    for _ in range(5):
        assert Transaction(world.tools()).recover().reason is Reason.UNREACHABLE
    assert steps_of(world).count(Step.INCONCLUSIVE) == 1
    assert world.starts == ["0.1.0", "0.2.0"]
    world.is_plane_up = True
    assert Transaction(world.tools()).recover().ending is Ending.COMMITTED


def test_ten_reboots_cost_a_good_release_nothing(tmp_path: Path) -> None:
    """A trial survives reboots in an outage: attempts of an earlier boot do not count in the next."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.is_plane_up = False
    world.update(scenario.wanted.request())
    for _ in range(6):
        world.disk.settle()
        world = world.reboot(world.disk.after_cut(kindly))
        assert world.starts == ["0.2.0"]
    world.is_plane_up = True
    assert Transaction(world.tools()).recover().ending is Ending.COMMITTED


@pytest.mark.parametrize("behaviour", ["good", "crash"])
@pytest.mark.parametrize("days", [-20_000, 3650], ids=["1970", "ten years ahead"])
@pytest.mark.parametrize("at", range(0, 72, 6))
def test_the_wall_clock_decides_nothing(tmp_path: Path, behaviour: str, days: int, at: int) -> None:
    """A clock that jumps in the middle of an update changes neither its end nor its attempts."""
    scenario = make_scenario(tmp_path, behaviour)
    world = scenario.begin()
    disk = world.disk
    inner = disk.point

    def jump(what: str) -> None:
        inner(what)
        if len(disk.points) > at:
            world.wall_offset = timedelta(days=days)

    disk.point = jump  # type: ignore[method-assign]
    expected = Ending.COMMITTED if scenario.is_good else Ending.ROLLED_BACK
    assert world.update(scenario.wanted.request()).ending is expected
    assert world.starts.count("0.2.0") == (1 if scenario.is_good else 3)


def test_a_damaged_state_file_is_rebuilt_from_the_journal(tmp_path: Path) -> None:
    """When state.json cannot be read, guard and updater agree on what was committed and what was rejected."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.update(scenario.wanted.request())
    world.disk.write(world.root.state_file, b"{")
    world.disk.settle()
    world = world.reboot(world.disk.after_cut(kindly))
    assert world.starts == ["0.2.0"]
    Transaction(world.tools()).recover()
    status = status_of(world)
    assert status.active is not None
    assert status.active.sha256 == scenario.wanted.sha256
    assert world.disk.read(world.root.state_file.with_name("state.json.damaged")) == b"{"


def test_a_damaged_state_without_a_journal_runs_the_newest_version(tmp_path: Path) -> None:
    """On a host that was never updated the guard and the updater agree on the highest sequence."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.disk.write(world.root.state_file, b"{")
    world.disk.settle()
    world = world.reboot(world.disk.after_cut(kindly))
    Transaction(world.tools()).recover()
    active = status_of(world).active
    assert active is not None
    assert active.sha256 == scenario.old[1].sha256
    assert world.starts == ["0.1.0"]


@pytest.mark.parametrize("damage", [b"{", None], ids=["damaged", "lost"])
def test_a_cut_while_the_state_is_rebuilt_does_no_harm(tmp_path: Path, damage: bytes | None) -> None:
    """At each point of the rebuilding the power may fail; the next run ends with the same document."""
    scenario = make_scenario(tmp_path, "good")
    for at in range(8):
        world = scenario.begin()
        world.update(scenario.wanted.request())
        if damage is None:
            world.disk.unlink(world.root.state_file)
        else:
            world.disk.write(world.root.state_file, damage)
        world.disk.settle()
        world.disk.cut_at = len(world.disk.points) + at
        with contextlib.suppress(PowerCutError):
            Transaction(world.tools()).recover()
        world.disk.cut_at = None
        for choose in (kindly, cruelly):
            after = world.reboot(world.disk.after_cut(choose))
            Transaction(after.tools()).recover()
            active = status_of(after).active
            assert active is not None
            assert active.sha256 == scenario.wanted.sha256


def test_a_person_can_go_back_to_the_previous_release(tmp_path: Path) -> None:
    """`rollback` brings the previous release back, and the one that was left does not return by itself."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.update(scenario.wanted.request())
    assert Transaction(world.tools()).roll_back().ending is Ending.COMMITTED
    status = status_of(world)
    assert status.active is not None
    assert status.active.sha256 == scenario.old[1].sha256
    assert world.update(scenario.wanted.request()).reason is Reason.DENYLISTED
    assert status.sequence == scenario.wanted.sequence


def test_a_refusal_that_repeats_is_journalled_once(tmp_path: Path) -> None:
    """A release that is refused at each run for a week leaves one record and restarts nothing."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    newer = StateDocument(Spec(), replace(status_of(world), sequence=99))
    world.disk.write(world.root.state_file, newer.to_json())
    for _ in range(100):
        assert world.update(scenario.wanted.request()).reason is Reason.ROLLBACK_REFUSED
    assert steps_of(world) == [Step.REFUSED]
    assert world.starts == ["0.1.0"]

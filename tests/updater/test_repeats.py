"""A release that the host failed, and not itself, is tried thrice while its request stands, and no more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman_updater.core.repeats import TIMES, seconds_left
from journeyman_updater.errors import Reason
from journeyman_updater.model.release import Slot, UpdateRequest, VersionId, parse_sha256
from journeyman_updater.model.state import Status, Undone
from journeyman_updater.ports import RestartToken
from journeyman_updater.steps.base import Limits
from journeyman_updater.steps.permit import PlanePermit
from journeyman_updater.transaction import Ending, Outcome, Transaction
from tests.crash.scenarios import Scenario, make_scenario
from tests.crash.world import World

TIMER_SECONDS = 300
DAY = 24 * 3600 // TIMER_SECONDS
SLOT = Slot(VersionId("1.0.0"), parse_sha256("ab" * 32))


class UnprovenWorld(World):
    """Its service manager never shows a new start, and its control plane asks for one release for ever."""

    standing: UpdateRequest

    def started_since(self, token: RestartToken) -> bool:
        return False

    def wanted(self) -> UpdateRequest | None:
        return self.standing


def begin(scenario: Scenario) -> UnprovenWorld:
    world = scenario.begin(limits=Limits())
    world.__class__ = UnprovenWorld
    assert isinstance(world, UnprovenWorld)
    world.standing = scenario.wanted.request()
    return world


def run(world: UnprovenWorld) -> Outcome:
    """What the timer starts."""
    transaction = Transaction(world.tools())
    found = transaction.recover()
    if found.ending is not Ending.NOTHING:
        return found
    transaction.forget_undone(world.standing)
    permit = PlanePermit(world.tools(), world.standing, lambda moment: moment)
    return transaction.apply(world.standing, permit)


def mend(world: World) -> None:
    """Its service manager shows each start from now on."""
    world.__class__ = World


def status_of(world: World) -> Status:
    return world.tools().records.load().status


def tries(world: World) -> int:
    """How often the release was put on trial."""
    history = world.tools().records.history()
    return len({each.detail["nonce"] for each in history if each.step == "activate"})


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["good", "unstartable"])
def test_three_tries_with_growing_pauses_and_then_a_day_of_nothing(tmp_path: Path, behaviour: str) -> None:
    """After the last try 24 h bring no restart, no byte and no write, and the artifact came once."""
    scenario = make_scenario(tmp_path, behaviour)
    world = begin(scenario)
    begun: list[float] = []
    for _ in range(2 * 3600 // TIMER_SECONDS):
        before = tries(world)
        begun += [world.seconds] * (run(world).ending is Ending.ROLLED_BACK)
        assert tries(world) <= before + 1
        world.seconds += TIMER_SECONDS
    assert tries(world) == len(begun) == TIMES
    pauses = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert pauses[0] >= world.limits.retry_pause
    assert pauses[1] >= 4 * world.limits.retry_pause
    assert world.bytes_fetched == len(scenario.wanted.archive)
    starts, points = list(world.starts), len(world.disk.points)
    for _ in range(DAY):
        outcome = run(world)
        assert (outcome.ending, outcome.reason) == (Ending.REFUSED, Reason.ATTEMPTS_EXHAUSTED)
        world.seconds += TIMER_SECONDS
    assert (world.starts, len(world.disk.points)) == (starts, points)
    assert world.bytes_fetched == len(scenario.wanted.archive)
    assert world.agent is not None
    assert world.agent.release == scenario.old[1]
    assert not status_of(world).has_rejected(scenario.wanted.sha256)
    assert scenario.wanted.slot.folder not in world.disk.names(world.root.versions)


def test_a_pause_is_told_by_the_reason_of_the_last_try(tmp_path: Path) -> None:
    """While it waits the outcome is LATER, says why it was undone, and nothing is written."""
    world = begin(make_scenario(tmp_path, "good"))
    assert run(world).ending is Ending.ROLLED_BACK
    run(world)
    points = len(world.disk.points)
    outcome = run(world)
    assert (outcome.ending, outcome.reason) == (Ending.LATER, Reason.RESTART_UNPROVEN)
    assert "try 2 of 3" in outcome.message
    assert len(world.disk.points) == points


def exhausted(tmp_path: Path) -> UnprovenWorld:
    world = begin(make_scenario(tmp_path, "good"))
    for _ in range(TIMES):
        assert run(world).ending is Ending.ROLLED_BACK
        world.seconds += 10 * world.limits.retry_pause
    assert run(world).reason is Reason.ATTEMPTS_EXHAUSTED
    return world


@pytest.mark.slow
def test_a_request_that_was_taken_back_begins_anew(tmp_path: Path) -> None:
    """Once nobody asks for it, nothing is held against it; a mended host then takes it."""
    world = exhausted(tmp_path)
    Transaction(world.tools()).forget_undone(None)
    assert status_of(world).undone == ()
    mend(world)
    assert world.update(world.standing).ending is Ending.COMMITTED


@pytest.mark.slow
def test_a_person_may_allow_it_and_success_forgets_it(tmp_path: Path) -> None:
    """`allow` lifts it as it lifts a rejection, and what was committed in the end is not held against it."""
    world = exhausted(tmp_path)
    assert world.update(world.standing).reason is Reason.ATTEMPTS_EXHAUSTED
    records = world.tools().records
    document = records.load()
    records.save(replace(document, status=document.status.allowing(world.standing.sha256)))
    assert run(world).ending is Ending.ROLLED_BACK
    mend(world)
    assert world.update(world.standing).ending is Ending.COMMITTED
    assert status_of(world).undone == ()


@pytest.mark.slow
def test_what_is_lost_with_the_state_document_comes_back_from_the_journal(tmp_path: Path) -> None:
    """A damaged state.json is no way to three more tries."""
    world = exhausted(tmp_path)
    world.disk.write(world.root.state_file, b"{")
    assert run(world).reason is Reason.ATTEMPTS_EXHAUSTED


def test_a_host_that_went_down_in_all_starts_is_spared_at_once(tmp_path: Path) -> None:
    """Nine crashes of the host are tried no second time."""
    world = begin(make_scenario(tmp_path, "good"))
    records = world.tools().records
    document = records.load()
    slot = Slot(world.standing.version, world.standing.sha256)
    status = document.status.undoing(slot, Reason.ATTEMPTS_EXHAUSTED, world.boot_id(), 0)
    records.save(replace(document, status=status))
    assert run(world).reason is Reason.ATTEMPTS_EXHAUSTED


@pytest.mark.parametrize(
    ("boot", "seconds", "left"),
    [("one", 100, 900), ("one", 999, 1), ("one", 1000, 0), ("two", 0, 900), ("two", 899, 1), ("two", 900, 0)],
)
def test_a_pause_is_of_one_boot_and_needs_no_wall_clock(boot: str, seconds: int, left: int) -> None:
    """In a new boot the pause begins with the boot, as nobody knows how long the host was off."""
    undone = Undone("1.0.0", SLOT.sha256, "RestartUnproven", 1, "one", 100 * 10**9)
    assert seconds_left(undone, boot, seconds * 10**9, pause_seconds=900) == left


def test_each_time_counts_for_one_release() -> None:
    """Each time counts once, and another release is another matter."""
    status = Status().undoing(SLOT, "RestartUnproven", "boot", 1).undoing(SLOT, "StartLimited", "boot", 2)
    assert status.undone == (Undone("1.0.0", SLOT.sha256, "StartLimited", 2, "boot", 2),)
    assert status.undone_of("cd" * 32) is None

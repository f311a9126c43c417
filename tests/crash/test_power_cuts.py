"""The power fails, or the updater is killed, at each point of an update; the host always finds its way."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.invariants import converge
from tests.crash.scenarios import (
    BEHAVIOURS,
    Scenario,
    make_scenario,
    random_outcome,
    single_outcomes,
)

SAMPLES = 2_000
FULL_SAMPLES = 20_000
PARTS = 16
"""The long ones run in parts, each of which ends long before pytest takes it for hung."""
MOST_PENDING = 12
JOURNAL_HALF_BYTES = 1_000
"""The journal of one update is about twice as long, so that it is rotated once."""

Say = Callable[[str], None]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Prints past pytest's capture: counts and seeds belong into the log of a green run, too."""

    def speak(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="")  # noqa: T201

    return speak


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["good", "crash"])
def test_any_single_cut_leaves_a_host_that_converges(tmp_path: Path, say: Say, behaviour: str) -> None:
    """After a clean cut, a torn write or a lost rename at any point, I1 to I9 hold."""
    scenario = make_scenario(tmp_path, behaviour)
    points = scenario.count_points()
    outcomes = 0
    for at, cut in enumerate(scenario.cuts()):
        for choices in _distinct(single_outcomes(cut.disk)):
            outcomes += 1
            with _explained(scenario, at, choices):
                scenario.examine(cut, choices)
    kinds = Counter(point.partition(" ")[0] for point in points)
    said = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    say(f"{behaviour}: {len(points)} points ({said}), {outcomes} outcomes, all points cut")
    assert set(kinds) >= {"write", "append", "fsync", "rename", "unlink", "mkdir", "rmdir", "spawn", "signal"}
    # The unit that starts the agent is replaced in it, and in the bad one put back as well.
    replaced = ["write service/.agent.unit.tmp", "fsync service/.agent.unit.tmp", "rename service/agent.unit"]
    times = 1 if scenario.is_good else 2
    assert [points.count(point) for point in [*replaced, "fsync service/"]] == 4 * [times]


@pytest.mark.slow
def test_a_cut_while_the_journal_is_rotated_loses_no_record(tmp_path: Path, say: Say) -> None:
    """Around the rotation in the middle of an update, all rules hold, and each fsync of it is needed."""
    scenario = replace(make_scenario(tmp_path, "good"), rotate_bytes=JOURNAL_HALF_BYTES)
    points = scenario.count_points()
    rotation = points.index("rename journal.jsonl.1")
    for at, cut in list(enumerate(scenario.cuts()))[rotation : rotation + 6]:
        for choices in _distinct(single_outcomes(cut.disk)):
            with _explained(scenario, at, choices):
                scenario.examine(cut, choices)
    around = range(rotation, rotation + 6)
    fsyncs = [at for at, point in enumerate(points) if point.startswith("fsync")]
    useless = [
        at for number, at in enumerate(fsyncs) if at in around and not _is_missed(scenario, number, at)
    ]
    say(f"rotation: {points[rotation : rotation + 6]}")
    assert not useless


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_updater_may_be_killed_at_any_point(tmp_path: Path, behaviour: str) -> None:
    """After kill -9 of the updater at any point, the agent goes on and the next run finishes."""
    scenario = make_scenario(tmp_path, behaviour)
    for at in range(len(scenario.count_points())):
        world = scenario.killed(at)
        world.wait(3)
        world.bytes_fetched = 0
        with _explained(scenario, at, []):
            converge(world, scenario.wanted, is_good=scenario.is_good)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_random_cuts_converge(tmp_path: Path, say: Say, part: int) -> None:
    """Any outcome of a cut at any point, before which the updater may have been killed, converges."""
    _sample(tmp_path, say, SAMPLES // 2)


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_cuts_converge(tmp_path: Path, say: Say, part: int) -> None:
    """As the smaller sample."""
    _sample(tmp_path, say, FULL_SAMPLES // PARTS)


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_all_outcomes_of_each_cut_converge(tmp_path: Path, say: Say, behaviour: str, part: int) -> None:
    """With up to 12 pending operations, each subset of them is lost or torn in turn; of more, a sample."""
    scenario = make_scenario(tmp_path, behaviour)
    outcomes: Counter[bool] = Counter()
    for at, cut in list(enumerate(scenario.cuts()))[part::PARTS]:
        is_exhausted = len(cut.disk.undecided()) <= MOST_PENDING
        for choices in _distinct(_subsets(len(cut.disk.undecided()))):
            outcomes[is_exhausted] += 1
            with _explained(scenario, at, choices):
                scenario.examine(cut, choices)
    say(f"{behaviour}: {outcomes[True]} outcomes, all there are; {outcomes[False]} of cuts with more")


def _subsets(pending: int) -> Iterator[list[int]]:
    if pending <= MOST_PENDING:
        for worst in (1, 3):
            yield from map(list, itertools.product((0, worst), repeat=pending))
    else:
        # The same ones each time, as the sample of all cuts has its own seed.
        chance = random.Random(pending)
        for _ in range(2**MOST_PENDING):
            yield [chance.choice((0, 1, 3)) for _ in range(pending)]


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [False, True], ids=["with a previous", "the first"])
@pytest.mark.parametrize("behaviour", ["good", "crash"])
def test_no_fsync_is_there_for_nothing(tmp_path: Path, say: Say, behaviour: str, *, is_first: bool) -> None:
    """If any one fsync of the product did nothing, at least one cut would break a rule."""
    scenario = replace(make_scenario(tmp_path, behaviour), is_first=is_first)
    points = scenario.count_points()
    fsyncs = [at for at, point in enumerate(points) if point.startswith("fsync")]
    useless = [at for number, at in enumerate(fsyncs) if not _is_missed(scenario, number, at)]
    say(f"{behaviour}: {len(fsyncs) - len(useless)} of {len(fsyncs)} fsyncs proven to be needed")
    # The run that removes the old copy flushes the journal's name, which is needed after a kill alone.
    allowed = [["fsync journal.jsonl", "fsync /"]]
    if behaviour == "crash":
        # That the new unit is known at the next boot matters to a release that stays.
        allowed.append(["mkdir units", "fsync /"])
        # The folder of the attempts is flushed at each start, as whoever made the file may have been killed
        # before; where it was not, only the first time matters.
        again = ["fsync agent/attempts", "fsync agent/"]
        assert [points[at - 1 : at + 1] for at in useless].count(again) < sum(
            points[at - 1 : at + 1] == again for at in fsyncs
        )
        allowed.append(again)
    assert [points[at - 1 : at + 1] for at in useless if points[at - 1 : at + 1] not in allowed] == []


@pytest.mark.slow
def test_a_new_journal_is_flushed_by_the_run_after_a_kill(tmp_path: Path) -> None:
    """The name of a journal whose writer was killed is durable before anything rests on a record."""
    scenario = make_scenario(tmp_path, "good")
    killed_at = scenario.count_points().index("fsync journal.jsonl")
    points = scenario.count_points(killed_at=killed_at)
    fsyncs = [at for at, point in enumerate(points) if point.startswith("fsync")]
    number, at = next(item for item in enumerate(fsyncs) if points[item[1]] == "fsync /")
    assert points[at - 1] == "fsync journal.jsonl"
    assert _is_missed(scenario, number, at, killed_at=killed_at)


def _is_missed(scenario: Scenario, number: int, position: int, *, killed_at: int | None = None) -> bool:
    """Whether a cut after that fsync breaks a rule when the fsync does nothing."""
    cuts = scenario.cuts(killed_at=killed_at, dropped_fsync=number)
    for cut in cuts[position + 1 - (killed_at or 0) :]:
        for choices in _distinct(single_outcomes(cut.disk)):
            try:
                scenario.examine(cut, choices)
            except (AssertionError, OSError, ValueError):
                return True
    return False


def _sample(folder: Path, say: Say, count: int) -> None:
    seed = int(os.environ.get("JOURNEYMAN_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    chance = random.Random(seed)
    scenarios = [make_scenario(folder / behaviour, behaviour) for behaviour in BEHAVIOURS]
    lengths = [len(scenario.count_points()) for scenario in scenarios]
    samples: dict[tuple[int, int | None], int] = Counter()
    for _ in range(count):
        number = chance.randrange(len(scenarios))
        samples[number, chance.randrange(lengths[number]) if chance.random() < 0.5 else None] += 1
    seen: set[tuple[int, int | None, int]] = set()
    # By history, so that each is run once and one at a time is held.
    for (number, killed_at), times in samples.items():
        scenario = scenarios[number]
        cuts = scenario.cuts(killed_at=killed_at)
        for _ in range(times):
            at = chance.randrange(len(cuts))
            seen.add((number, killed_at, at))
            choices = random_outcome(cuts[at].disk, chance)
            with _explained(scenario, at, choices, killed_at):
                scenario.examine(cuts[at], choices)
    unkilled = sum(killed_at is None for _, killed_at, _ in seen)
    total = sum(lengths) + len(lengths)
    say(
        f"seed {seed}: {count} samples, at {unkilled} of the {total} cuts of a first run, "
        f"and at {len(seen) - unkilled} cuts of {len(samples) - len(scenarios)} runs after a kill"
    )


class _explained:  # noqa: N801  It reads as a phrase.
    """Says how to repeat a failure."""

    def __init__(self, scenario: Scenario, at: int, choices: list[int], killed_at: int | None = None) -> None:
        killed = "" if killed_at is None else f"killed at point {killed_at}, then "
        self._where = f"{scenario.wanted.behaviour}, {killed}cut at point {at}, choices {choices}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._where)


def _distinct(outcomes: Iterator[list[int]]) -> Iterator[list[int]]:
    seen = set()
    for outcome in outcomes:
        if tuple(outcome) not in seen:
            seen.add(tuple(outcome))
            yield outcome

"""The ladder as it is climbed: what is remembered between two looks."""

from __future__ import annotations

from dataclasses import dataclass, field

from journeyman.core.gates.ladder import Action, Do, Job
from journeyman.core.gates.machine import Phase, Reason
from journeyman.core.gates.marks import LadderMarks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict, Verdict
from journeyman.loops.ladder_loop import Ladder

MARKS = LadderMarks(suspend_limit_seconds=60, grace_seconds=30, settle_seconds=15)


@dataclass
class Runner:
    """Has work, and notes what is asked of it."""

    jobs: list[Job]
    asked: list[Action] = field(default_factory=list)

    def work(self) -> list[Job]:
        return self.jobs

    def carry_out(self, action: Action) -> None:
        self.asked.append(action)

    def took(self) -> list[tuple[Do, str]]:
        """What was asked since the last look."""
        found = [(action.do, action.job_id) for action in self.asked]
        self.asked.clear()
        return found


class Bench:
    """A ladder with a gate that a test moves, and a clock that a test sets."""

    def __init__(self, *runners: Runner) -> None:
        self.now = 0.0
        self.level = Level.OPEN
        self.gate = "thermal"
        self.promised: list[float] = []
        self.ladder = Ladder(
            runners=runners,
            verdict=self.verdict,
            boot_now=lambda: self.now,
            marks=MARKS,
            phone=False,
            promised=self.promised.append,
        )

    def verdict(self) -> Verdict:
        reasons = (Reason("Why", ""),)
        return Verdict((
            GateVerdict(
                self.gate, Phase.CLOSED, self.level, 0.0, reasons, pressing=self.level, pressed_at=self.now
            ),
        ))  # fmt: skip

    def at(self, now: float, level: Level) -> None:
        self.now, self.level = now, level
        self.ladder.act()


def test_one_job_climbs_the_whole_ladder_by_its_deadlines() -> None:
    """Suspended; after its bound asked to end; after the grace killed; and each step is taken once."""
    runner = Runner([Job("a", 0)])
    bench = Bench(runner)
    steps = {
        0.0: [(Do.SUSPEND, "a")], 59.0: [], 60.0: [(Do.TERMINATE, "a")], 89.0: [],
        90.0: [(Do.KILL, "a")], 95.0: [],
    }  # fmt: skip
    for now, expected in steps.items():
        bench.at(now, Level.SUSPEND)
        assert runner.took() == expected


def test_what_was_suspended_goes_on_when_the_gate_opens() -> None:
    """And may be suspended again later."""
    runner = Runner([Job("a", 0)])
    bench = Bench(runner)
    for now, level, expected in (
        (0, Level.SUSPEND, [(Do.SUSPEND, "a")]),
        (20, Level.OPEN, [(Do.RESUME, "a")]),
        (40, Level.SUSPEND, [(Do.SUSPEND, "a")]),
    ):
        bench.at(now, level)
        assert runner.took() == expected


def test_work_that_can_run_again_goes_before_work_that_cannot_whoever_runs_it() -> None:
    """Tasks are handed back before a job of the lane is ended, one at a time."""
    tasks, lane = Runner([Job("task", 0, 1)]), Runner([Job("job", 0, 1 << 30, retriable=False)])
    bench = Bench(lane, tasks)
    bench.at(0, Level.DRAIN)
    assert (tasks.took(), lane.took()) == ([(Do.TERMINATE, "task")], [])
    tasks.jobs = []
    bench.at(5, Level.DRAIN)
    assert lane.took() == []
    bench.at(15, Level.DRAIN)
    assert lane.took() == [(Do.TERMINATE, "job")]


def test_who_is_ended_for_the_disk_promises_what_it_has_written() -> None:
    """So that the gate can tell whether it helped; an end for another gate promises nothing."""
    bench = Bench(Runner([Job("a", 0, disk_bytes=5000)]))
    bench.at(0, Level.DRAIN)
    assert bench.promised == []
    bench = Bench(Runner([Job("a", 0, disk_bytes=5000)]))
    bench.gate = "disk"
    bench.at(0, Level.DRAIN)
    assert bench.promised == [5000]

"""What happens to running work."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.gates.ladder import Action, Do, Job, Step, next_actions
from journeyman.core.gates.machine import Phase, Reason
from journeyman.core.gates.marks import LadderMarks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict, Verdict

MARKS = LadderMarks()
GB = 1 << 30
ORDER = [Step.RUNNING, Step.SUSPENDED, Step.TERMINATING, Step.KILLED]


def asking(gate: str, level: Level, *, scope: str = "all", pressing: Level | None = None) -> Verdict:
    """One gate that asks for a level, by a reading of this moment unless the test says otherwise."""
    now = level if pressing is None else pressing
    return Verdict((GateVerdict(gate, Phase.CLOSED, level, 0.0, (Reason("Why", ""),), scope, pressing=now),))


OPEN = Verdict((GateVerdict("thermal", Phase.OPEN, Level.OPEN, 0.0, ()),))


def carried_out(jobs: list[Job], actions: tuple[Action, ...], now: float) -> list[Job]:
    """The jobs after the actions, as the loops would leave them."""
    steps = {
        Do.SUSPEND: Step.SUSPENDED,
        Do.RESUME: Step.RUNNING,
        Do.TERMINATE: Step.TERMINATING,
        Do.KILL: Step.KILLED,
    }
    todo = {action.job_id: steps[action.do] for action in actions}
    return [
        replace(job, step=todo[job.job_id], step_since=now) if job.job_id in todo else job for job in jobs
    ]


def test_a_hold_touches_nothing_that_runs() -> None:
    """No new work is all that a hold asks for."""
    assert next_actions([Job("a", 0)], asking("thermal", Level.HOLD), 100, MARKS) == ()


def test_heat_suspends_the_biggest_retriable_work_first_and_one_at_a_time() -> None:
    """The next one's turn comes when the first step has had time to show."""
    jobs = [Job("small", 0, GB), Job("big", 0, 8 * GB), Job("precious", 0, 16 * GB, retriable=False)]
    first = next_actions(jobs, asking("thermal", Level.SUSPEND), 100, MARKS)
    assert [(one.do, one.job_id) for one in first] == [(Do.SUSPEND, "big")]
    jobs = carried_out(jobs, first, 100)
    assert next_actions(jobs, asking("thermal", Level.SUSPEND), 105, MARKS, last_step_at=100) == ()
    second = next_actions(jobs, asking("thermal", Level.SUSPEND), 116, MARKS, last_step_at=100)
    assert [(one.do, one.job_id) for one in second] == [(Do.SUSPEND, "small")]


def test_the_younger_of_two_equals_goes_first() -> None:
    """It has less to lose."""
    jobs = [Job("old", 0, GB), Job("young", 50, GB)]
    assert next_actions(jobs, asking("thermal", Level.DRAIN), 100, MARKS)[0].job_id == "young"


def test_suspended_work_goes_on_when_the_gate_opens() -> None:
    """A suspension is no end."""
    job = Job("a", 0, step=Step.SUSPENDED, step_since=90)
    assert [one.do for one in next_actions([job], OPEN, 100, MARKS)] == [Do.RESUME]


def test_a_suspension_is_bounded() -> None:
    """After ten minutes standing still the work is asked to save itself and end."""
    job = Job("a", 0, step=Step.SUSPENDED, step_since=0)
    assert next_actions([job], asking("thermal", Level.SUSPEND), 599, MARKS) == ()
    found = next_actions([job], asking("thermal", Level.SUSPEND), 600, MARKS)
    assert [(one.do, one.reason) for one in found] == [(Do.TERMINATE, "SuspendedTooLong")]


def test_work_with_a_live_lease_is_ended_instead_of_suspended() -> None:
    """Standing still, it would lose the lease and go on without it."""
    job = Job("a", 0, suspendable=False)
    assert next_actions([job], asking("thermal", Level.SUSPEND), 100, MARKS)[0].do is Do.TERMINATE


def test_memory_pressure_does_not_suspend() -> None:
    """Work that stands still gives no memory back."""
    assert next_actions([Job("a", 0)], asking("memory", Level.SUSPEND), 100, MARKS)[0].do is Do.TERMINATE


def test_a_full_disk_ends_the_largest_writer_first() -> None:
    """Not the one with the most memory."""
    jobs = [Job("thinker", 0, 8 * GB, disk_bytes=1), Job("writer", 0, GB, disk_bytes=9 * GB)]
    assert next_actions(jobs, asking("disk", Level.DRAIN), 100, MARKS)[0].job_id == "writer"


def test_the_grace_ends_in_a_kill() -> None:
    """SIGTERM is a request; its deadline is not."""
    job = Job("a", 0, step=Step.TERMINATING, step_since=100)
    assert next_actions([job], asking("thermal", Level.DRAIN), 129, MARKS) == ()
    assert [one.do for one in next_actions([job], OPEN, 130, MARKS)] == [Do.KILL]


def test_a_job_may_ask_for_more_grace_and_phones_give_less() -> None:
    """A fine-tuning run needs minutes for its checkpoint; a phone that is dying has none."""
    verdict = asking("power", Level.DRAIN)
    assert next_actions([Job("a", 0, grace_seconds=180)], verdict, 100, MARKS)[0].grace_seconds == 180
    assert next_actions([Job("a", 0)], verdict, 100, MARKS, phone=True)[0].grace_seconds == 15


def test_a_kill_for_heat_takes_all_at_once() -> None:
    """A host that burns has no time for turns."""
    jobs = [Job("a", 0), Job("b", 0, step=Step.TERMINATING, step_since=99)]
    assert {one.job_id for one in next_actions(jobs, asking("thermal", Level.KILL), 100, MARKS)} == {"a", "b"}


def test_a_kill_for_memory_takes_one_job_a_sweep() -> None:
    """One end may free enough, and the next reading says whether it did."""
    jobs = [Job("small", 0, GB), Job("big", 0, 8 * GB)]
    assert [one.job_id for one in next_actions(jobs, asking("memory", Level.KILL), 100, MARKS)] == ["big"]


def test_memory_takes_no_second_job_for_the_reading_that_took_the_first() -> None:
    """A sensor that is read less often than the ladder looks would otherwise take two for one."""
    jobs, pressed = [Job("left", 0, GB)], replace(asking("memory", Level.KILL).gates[0], pressed_at=100.0)
    verdict = Verdict((pressed,))
    assert next_actions(jobs, verdict, 101, MARKS, last_step_at=100.5) == ()
    fresh = Verdict((replace(pressed, pressed_at=105.0),))
    assert [one.job_id for one in next_actions(jobs, fresh, 105, MARKS, last_step_at=100.5)] == ["left"]


def test_a_gate_that_presses_no_more_takes_no_further_victim() -> None:
    """It stays closed for its dwell, but the work that is left goes on, and what stands still stays so."""
    jobs = [Job("left", 0), Job("still", 0, step=Step.SUSPENDED, step_since=90)]
    closed = asking("thermal", Level.KILL, pressing=Level.OPEN)
    assert next_actions(jobs, closed, 200, MARKS) == ()


def test_a_gate_of_the_gpu_leaves_other_work_alone() -> None:
    """A hot GPU is no reason to stop a text task."""
    jobs = [Job("text", 0), Job("model", 0, capabilities=frozenset({"gpu"}))]
    found = next_actions(jobs, asking("gpu", Level.SUSPEND, scope="gpu"), 100, MARKS)
    assert [one.job_id for one in found] == ["model"]


levels = st.lists(st.tuples(st.sampled_from(Level), st.integers(1, 60)), min_size=1, max_size=40)


@given(levels, st.sampled_from(["thermal", "memory", "disk", "power"]))
def test_no_job_climbs_down_but_by_a_resume(given_levels: list[tuple[Level, int]], gate: str) -> None:
    """Whatever the gate asks for, a job goes up the ladder, or resumes when nothing asks."""
    jobs, now = [Job("a", 0, GB), Job("b", 1, 2 * GB), Job("c", 2, suspendable=False)], 100.0
    for level, gap in given_levels:
        now += gap
        before = jobs
        actions = next_actions(jobs, asking(gate, level), now, MARKS)
        jobs = carried_out(jobs, actions, now)
        for old, new in zip(before, jobs, strict=True):
            resumed = old.step is Step.SUSPENDED and new.step is Step.RUNNING and level < Level.SUSPEND
            assert resumed or ORDER.index(new.step) >= ORDER.index(old.step)


@given(st.sampled_from([Level.DRAIN, Level.KILL]))
def test_a_gate_that_stays_closed_ends_everything_in_bounded_time(level: Level) -> None:
    """Three jobs that ignore SIGTERM are gone after their turns and their graces."""
    jobs, now = [Job(name, 0) for name in "abc"], 0.0
    while any(job.step is not Step.KILLED for job in jobs):
        jobs = carried_out(jobs, next_actions(jobs, asking("thermal", level), now, MARKS), now)
        now += 5
        assert now <= 3 * (MARKS.grace_seconds + MARKS.settle_seconds + 5)


def test_an_idle_model_server_goes_before_all_work_and_a_busy_one_after_what_can_run_again() -> None:
    """Nobody misses the first; the second serves what may end before it."""
    memory = frozenset({"memory"})
    idle = Job("idle-server", 0, 2 * GB, retriable=False, suspendable=False, idle=True, gates=memory)
    busy = Job("busy-server", 0, 9 * GB, retriable=False, suspendable=False, gates=memory)
    jobs = [Job("lane", 0, 8 * GB, retriable=False), Job("task", 0, GB), busy, idle]
    order = []
    while jobs:
        [action] = next_actions(jobs, asking("memory", Level.KILL), 100, MARKS)
        order.append(action.job_id)
        jobs = [job for job in jobs if job.job_id != action.job_id]
    assert order == ["idle-server", "task", "busy-server", "lane"]


def test_a_lower_rank_goes_first_even_if_it_is_busy_and_who_is_protected_goes_last() -> None:
    """Rank goes before idleness and size; among equals, and for work without a rank, all is as ever."""
    memory = frozenset({"memory"})

    def server(name: str, rank: int, *, idle: bool = False, protected: bool = False) -> Job:
        return Job(
            name, 0, GB, retriable=False, suspendable=False, gates=memory,
            idle=idle, rank=rank, protected=protected,
        )  # fmt: skip

    jobs = [
        Job("lane", 0, 8 * GB, retriable=False),
        server("protected", -2, idle=True, protected=True),
        server("critical", 2, idle=True),
        server("high-busy", 1),
        server("high-idle", 1, idle=True),
        server("usual", 0, idle=True),
        server("batch", -2),
    ]
    order = []
    while jobs:
        [action] = next_actions(jobs, asking("memory", Level.KILL), 100, MARKS)
        order.append(action.job_id)
        jobs = [job for job in jobs if job.job_id != action.job_id]
    assert order == ["batch", "usual", "lane", "high-idle", "high-busy", "critical", "protected"]


def test_who_is_protected_is_ended_only_where_the_host_itself_would_kill() -> None:
    """Short of the last mark nothing is asked of it."""
    server = Job("server", 0, suspendable=False, protected=True, gates=frozenset({"memory"}))
    assert next_actions([server], asking("memory", Level.DRAIN), 100, MARKS) == ()
    [action] = next_actions([server], asking("memory", Level.KILL), 100, MARKS)
    assert action.do is Do.KILL


def test_a_model_server_answers_to_memory_alone() -> None:
    """Heat ends the work that makes it hot; a server that nobody asks makes none."""
    server = Job("server", 0, idle=True, suspendable=False, gates=frozenset({"memory"}))
    assert next_actions([server], asking("thermal", Level.KILL), 100, MARKS) == ()
    assert next_actions([server], asking("disk", Level.KILL), 100, MARKS) == ()
    [action] = next_actions([server], asking("memory", Level.DRAIN), 100, MARKS)
    assert (action.do, action.grace_seconds) == (Do.TERMINATE, 30)

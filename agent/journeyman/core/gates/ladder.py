"""What happens to work that already runs when a gate closes: suspend, then TERM with a checkpoint, then KILL.

Each step has a bound.  The lowest rank goes first.  In a rank model servers that nobody uses go first, for
memory alone; then the biggest and youngest work that can be tried again, one at a time, except where heat or
power ask to kill.  A step needs a reading of this moment behind it: a gate that is still closed but presses
no more takes no further victim.
Pure: it says what to do, the loops do it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from journeyman.core.gates.marks import LadderMarks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict, Verdict

# Standing still frees neither memory nor disk, so these gates skip that step; and as one end may free enough,
# they kill one job a sweep.
OF_SPACE = {"memory", "disk"}


class Step(StrEnum):
    """Where one piece of work stands on the ladder."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    TERMINATING = "terminating"
    KILLED = "killed"


@dataclass(frozen=True)
class Job:
    """Work that runs.

    Attributes:
        job_id: its worker.
        started_at: boot-time clock.
        ram_bytes: what it uses.
        disk_bytes: what it has written.
        suspendable: whether it may stand still; not with a live lease over the network.
        retriable: whether it can be run again.
        capabilities: such as `gpu`.
        step: where it stands.
        step_since: since when, boot-time clock.
        grace_seconds: what it needs to save a checkpoint; None for the host's.
        idle: whether nobody would miss it now, as with a model server that nobody asks.
        gates: the gates that it answers to; empty for all.
        rank: who has the lower one goes first, whatever it does; 0 is usual.
        protected: whether it goes after all others, and only when a gate asks to kill.
    """

    job_id: str
    started_at: float
    ram_bytes: int = 0
    disk_bytes: int = 0
    suspendable: bool = True
    retriable: bool = True
    capabilities: frozenset[str] = frozenset()
    step: Step = Step.RUNNING
    step_since: float = 0.0
    grace_seconds: float | None = None
    idle: bool = False
    gates: frozenset[str] = frozenset()
    rank: int = 0
    protected: bool = False


class Do(StrEnum):
    """What is to be done to a job."""

    SUSPEND = "suspend"
    RESUME = "resume"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True)
class Action:
    """One step for one job.

    Attributes:
        do: what.
        job_id: to whom.
        gate: the gate that asks for it; empty for a resume.
        reason: its reason code.
        grace_seconds: for TERMINATE: the time until KILL.
    """

    do: Do
    job_id: str
    gate: str = ""
    reason: str = ""
    grace_seconds: float = 0.0


def next_actions(
    jobs: Iterable[Job],
    verdict: Verdict,
    now: float,
    marks: LadderMarks,
    *,
    phone: bool = False,
    last_step_at: float = -math.inf,
) -> tuple[Action, ...]:
    """What to do now.  Calling it again after the actions were carried out leads up the ladder.

    Args:
        jobs: all that runs.
        verdict: what the gates ask for.
        now: the boot-time clock.
        marks: bounds of the steps.
        phone: whether the shorter grace of phones applies.
        last_step_at: when work was last interrupted, boot-time clock; that may have ended since.
    """
    grace = marks.phone_grace_seconds if phone else marks.grace_seconds
    alive = sorted((job for job in jobs if job.step is not Step.KILLED), key=_victim_order)
    overdue = [action for job in alive for action in _overdue(job, now, marks, grace)]
    moved = {action.job_id for action in overdue}
    rest = [job for job in alive if job.job_id not in moved]
    judged = Verdict(tuple(gate for gate in verdict.gates if _is_news(gate, last_step_at)))
    wanted = [_wanted(job, judged, grace) for job in rest]
    kills = _kills([action for action in wanted if action is not None and action.do is Do.KILL], rest)
    resumes = [action for action in wanted if action is not None and action.do is Do.RESUME]
    gentle = [action for action in wanted if action is not None and action.do in {Do.SUSPEND, Do.TERMINATE}]
    settling = now - last_step_at < marks.settle_seconds
    turn = [] if settling or overdue or kills else _by_writing(gentle, rest)[:1]
    return (*overdue, *kills, *turn, *resumes)


def _is_news(gate: GateVerdict, last_step_at: float) -> bool:
    """Whether a gate of space has looked since it last got some: an older reading would take two for one."""
    return gate.name not in OF_SPACE or gate.pressing is Level.OPEN or gate.pressed_at > last_step_at


def _victim_order(job: Job) -> tuple[bool, int, bool, bool, int, float]:
    """By protection and rank; then idle before busy, what can run again before the rest, big before small."""
    return (job.protected, job.rank, not job.idle, not job.retriable, -job.ram_bytes, -job.started_at)


def _kills(actions: list[Action], jobs: list[Job]) -> list[Action]:
    """All at once, but for memory and disk only the first."""
    at_once = [action for action in actions if action.gate not in OF_SPACE]
    return at_once + _by_writing([action for action in actions if action.gate in OF_SPACE], jobs)[:1]


def _by_writing(actions: list[Action], jobs: list[Job]) -> list[Action]:
    """For the disk, the largest writer's turn comes first."""
    written = {job.job_id: job.disk_bytes for job in jobs}
    return sorted(actions, key=lambda action: -written[action.job_id] if action.gate == "disk" else 0)


def _overdue(job: Job, now: float, marks: LadderMarks, grace: float) -> list[Action]:
    waited = now - job.step_since
    own_grace = grace if job.grace_seconds is None else job.grace_seconds
    if job.step is Step.TERMINATING and waited >= own_grace:
        return [Action(Do.KILL, job.job_id, reason="GraceOver")]
    if job.step is Step.SUSPENDED and waited >= marks.suspend_limit_seconds:
        return [Action(Do.TERMINATE, job.job_id, reason="SuspendedTooLong", grace_seconds=own_grace)]
    return []


def _wanted(job: Job, verdict: Verdict, grace: float) -> Action | None:
    gates = [gate for gate in verdict.closed(job.capabilities) if not job.gates or gate.name in job.gates]
    asking = max(gates, key=_pressure, default=None)
    level = Level.OPEN if asking is None else _effective(asking)
    if level < Level.SUSPEND or asking is None:
        calm = all(gate.level < Level.SUSPEND for gate in gates)
        return Action(Do.RESUME, job.job_id) if job.step is Step.SUSPENDED and calm else None
    reason = asking.reasons[-1].code if asking.reasons else ""
    if level is Level.KILL:
        return Action(Do.KILL, job.job_id, asking.name, reason)
    if job.protected:
        return None
    if job.step is Step.TERMINATING:
        return None
    if level is Level.SUSPEND and job.suspendable:
        return None if job.step is Step.SUSPENDED else Action(Do.SUSPEND, job.job_id, asking.name, reason)
    own_grace = grace if job.grace_seconds is None else job.grace_seconds
    return Action(Do.TERMINATE, job.job_id, asking.name, reason, own_grace)


def _effective(gate: GateVerdict) -> Level:
    helpless = gate.pressing is Level.SUSPEND and gate.name in OF_SPACE
    return Level.DRAIN if helpless else gate.pressing


def _pressure(gate: GateVerdict) -> tuple[Level, float]:
    return (_effective(gate), -gate.since)

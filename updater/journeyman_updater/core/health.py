"""STARTED, READY, HEALTHY: what a trial shows, folded into a verdict.

Only what the release itself did counts against it.  An API that nobody can reach, or a clock that is wrong,
is inconclusive: the trial goes on and costs nothing.  A heartbeat that was never tried is a failure, as no
outage explains it; one that was tried and that others could have delivered is one, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from journeyman_updater.contract import ProcessIdentity, TrialReport
from journeyman_updater.errors import Reason

_SHORTEST_WAIT_SECONDS = 0.01


class Health(Enum):
    """What to do next."""

    WAIT = auto()
    """Nothing can be said yet."""
    HEALTHY = auto()
    """It may be committed."""
    FAILED = auto()
    """It has to be undone."""
    INCONCLUSIVE = auto()
    """Something else keeps it from being judged; look again later."""


@dataclass(frozen=True)
class Verdict:
    """A judgement with its grounds.

    Attributes:
        health: what to do next.
        reason: the reason code, unless it is WAIT or HEALTHY.
        evidence: one line for people.
        rejects: whether the evidence comes from the release itself.
    """

    health: Health
    reason: Reason | None = None
    evidence: str = ""
    rejects: bool = False


@dataclass(frozen=True)
class HealthLimits:
    """Deadlines, in seconds.

    Attributes:
        ready: from the start of a process to READY; the guard's alarm ends hanging ones after this time.
        margin: what is added to `ready` before the updater itself calls it a hang.
        start: from the request for a restart to a new process.
        beat: between two attempts of a heartbeat, and from READY to the first.
        accept: from the first attempt to the first accepted heartbeat, while the API can be reached.
        soak: from the first accepted heartbeat to HEALTHY.
        patience: how long an inconclusive trial is watched before the updater comes back later.
    """

    ready: float = 15.0
    margin: float = 5.0
    start: float = 30.0
    beat: float = 45.0
    accept: float = 60.0
    soak: float = 60.0
    patience: float = 120.0


@dataclass(frozen=True)
class Observation:
    """One look at the trial.

    Attributes:
        at: seconds of the monotonic clock.
        running: the process that the guard started for this trial and that the service manager runs, if any.
        other_runs: whether the service manager runs another agent instead.
        report: the trial's own report; only one with its nonce, and of the process that runs.
        is_exhausted: whether the guard will not start it again.
        spent_all_boots: whether that is so only because of starts in earlier boots.
        is_plane_reachable: whether the updater itself reaches the control plane.
    """

    at: float
    running: ProcessIdentity | None
    other_runs: bool
    report: TrialReport | None
    is_exhausted: bool
    spent_all_boots: bool
    is_plane_reachable: bool


@dataclass(frozen=True)
class Watch:
    """What is remembered between two looks; each `since` is in seconds of the monotonic clock.

    Attributes:
        began: of the first look.
        process_since: since when the process is the same one, or since when there is none.
        attempted_since: since when the number of attempted heartbeats has not grown.
        process: the process of the last look.
        longest_run: of a process that never became READY, in seconds.
        was_ready: whether any process of the trial became READY.
        is_ready: whether this process did.
        attempted: heartbeats attempted at the last look.
        refused_since: since when heartbeats are attempted, not accepted, and the API can be reached.
        accepted_since: since when heartbeats are accepted without a break.
        accepted: heartbeats accepted when that began.
    """

    began: float
    process_since: float
    attempted_since: float
    process: ProcessIdentity | None = None
    longest_run: float = 0.0
    was_ready: bool = False
    is_ready: bool = False
    attempted: int = 0
    refused_since: float | None = None
    accepted_since: float | None = None
    accepted: int = 0

    @classmethod
    def starting(cls, at: float) -> Watch:
        return cls(began=at, process_since=at, attempted_since=at)


def observe(watch: Watch, look: Observation, limits: HealthLimits) -> tuple[Watch, Verdict]:
    """Folds one look into the watch and judges."""
    watch = _note(watch, look)
    if look.running is None:
        judge = _exhausted if look.is_exhausted else _not_started
        return watch, judge(watch, look, limits)
    if look.report is None:
        return watch, _not_ready(watch, look, limits)
    return watch, _ready(watch, look, look.report, limits)


def next_look(watch: Watch, at: float, limits: HealthLimits, poll: float) -> float:
    """How many seconds to wait: the end of the soak is not slept through.

    Args:
        watch: after the last look.
        at: seconds of the monotonic clock.
        limits: the deadlines.
        poll: the longest wait, in seconds.
    """
    left = poll if watch.accepted_since is None else watch.accepted_since + limits.soak - at
    return min(poll, max(left, _SHORTEST_WAIT_SECONDS)) if left > 0 else poll


def _note(watch: Watch, look: Observation) -> Watch:
    if look.running != watch.process:
        watch = replace(
            watch,
            process=look.running,
            process_since=look.at,
            is_ready=False,
            attempted=0,
            attempted_since=look.at,
            refused_since=None,
            accepted_since=None,
        )
    report = look.report
    if report is None:
        alive = look.at - watch.process_since if look.running else 0.0
        return replace(watch, longest_run=max(watch.longest_run, alive))
    if report.beats_attempted > watch.attempted or not watch.is_ready:
        watch = replace(watch, attempted=report.beats_attempted, attempted_since=look.at)
    is_accepted = report.beats_accepted > 0 and not report.beat_error
    is_refused = report.beats_attempted > 0 and not is_accepted and look.is_plane_reachable
    if watch.accepted_since is None:
        watch = replace(watch, accepted=report.beats_accepted)
    return replace(
        watch,
        was_ready=True,
        is_ready=True,
        accepted_since=_since(watch.accepted_since, look.at) if is_accepted else None,
        refused_since=_since(watch.refused_since, look.at) if is_refused else None,
    )


def _since(before: float | None, now: float) -> float:
    return now if before is None else before


def _exhausted(watch: Watch, look: Observation, limits: HealthLimits) -> Verdict:
    if look.spent_all_boots:
        text = "the host went down in too many of its starts"
        return Verdict(Health.FAILED, Reason.ATTEMPTS_EXHAUSTED, text)
    if watch.was_ready:
        return _failed(Reason.UNHEALTHY, "it became READY and ended by itself in each attempt")
    if watch.longest_run >= limits.ready - limits.margin:
        return _failed(Reason.NOT_READY, f"it was not READY after {limits.ready:g} s in each attempt")
    return _failed(Reason.CRASH_LOOP, "it ended by itself before READY in each attempt")


def _not_started(watch: Watch, look: Observation, limits: HealthLimits) -> Verdict:
    if look.at - watch.process_since < limits.start:
        return Verdict(Health.WAIT)
    what = "another agent still runs" if look.other_runs else "nothing runs"
    evidence = f"{what} {limits.start:g} s after the restart was asked for"
    return Verdict(Health.FAILED, Reason.RESTART_UNPROVEN, evidence)


def _not_ready(watch: Watch, look: Observation, limits: HealthLimits) -> Verdict:
    if look.at - watch.process_since < limits.ready + limits.margin:
        return Verdict(Health.WAIT)
    return _failed(Reason.NOT_READY, f"it was not READY after {limits.ready + limits.margin:g} s")


def _ready(watch: Watch, look: Observation, report: TrialReport, limits: HealthLimits) -> Verdict:
    if not report.loops_ticking:
        return _failed(Reason.UNHEALTHY, "one of its loops no longer ticks")
    if look.at - watch.attempted_since >= limits.beat:
        what = "a further" if report.beats_attempted else "a first"
        return _failed(Reason.UNHEALTHY, f"it has not attempted {what} heartbeat for {limits.beat:g} s")
    if watch.accepted_since is not None:
        # One heartbeat is no soak, however long ago it was.
        goes_on = report.beats_accepted > watch.accepted
        is_over = goes_on and look.at - watch.accepted_since >= limits.soak
        return Verdict(Health.HEALTHY if is_over else Health.WAIT)
    return _not_accepted(watch, look, report, limits)


def _not_accepted(watch: Watch, look: Observation, report: TrialReport, limits: HealthLimits) -> Verdict:
    if report.beat_error == Reason.CLOCK_WRONG:
        return _inconclusive(watch, look, limits, Reason.CLOCK_WRONG)
    if report.beats_attempted and not look.is_plane_reachable:
        return _inconclusive(watch, look, limits, Reason.UNREACHABLE)
    if watch.refused_since is not None and look.at - watch.refused_since >= limits.accept:
        evidence = f"its heartbeats fail for {limits.accept:g} s ({report.beat_error}) on a good network"
        return _failed(Reason.UNHEALTHY, evidence)
    return Verdict(Health.WAIT)


def _inconclusive(watch: Watch, look: Observation, limits: HealthLimits, reason: Reason) -> Verdict:
    if look.at - watch.began < limits.patience:
        return Verdict(Health.WAIT)
    return Verdict(Health.INCONCLUSIVE, reason, "its heartbeats are attempted and cannot arrive")


def _failed(reason: Reason, evidence: str) -> Verdict:
    return Verdict(Health.FAILED, reason, evidence, rejects=True)

"""The verdict over a trial: what counts against it, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from journeyman_updater.contract import ProcessIdentity, TrialReport
from journeyman_updater.core.health import (
    Health,
    HealthLimits,
    Observation,
    Verdict,
    Watch,
    next_look,
    observe,
)
from journeyman_updater.errors import Reason

LIMITS = HealthLimits(ready=10, margin=5, start=20, beat=30, accept=40, soak=25, patience=50)


@dataclass(frozen=True)
class Look:
    """One second of a trial, in short.

    Attributes:
        pid: of the trial's process, or None.
        ready: whether it has reported.
        attempted: heartbeats attempted.
        accepted: heartbeats accepted.
        error: of the last heartbeat.
        ticking: whether its loops tick.
        exhausted: whether its attempts are over.
        reachable: whether the updater reaches the control plane.
        other: whether another agent runs instead.
        old_boots: whether the attempts were spent in earlier boots.
    """

    pid: int | None = 1
    ready: bool = True
    attempted: int = 0
    accepted: int = 0
    error: str = ""
    ticking: bool = True
    exhausted: bool = False
    reachable: bool = True
    other: bool = False
    old_boots: bool = False

    def at(self, second: float) -> Observation:
        report = TrialReport(
            "n", self.pid or 0, "s", "sha", self.ticking, self.attempted, self.accepted, self.error
        )
        return Observation(
            at=second,
            running=ProcessIdentity("b", self.pid, "s") if self.pid else None,
            other_runs=self.other,
            report=report if self.ready and self.pid else None,
            is_exhausted=self.exhausted,
            spent_all_boots=self.old_boots,
            is_plane_reachable=self.reachable,
        )


def judge(look: Look, *, beats: bool = False, seconds: int = 300) -> tuple[int, Verdict]:
    """The first verdict and its second; with `beats`, heartbeats are attempted and accepted each second."""
    watch = Watch.starting(0.0)
    for second in range(seconds):
        now = look
        if beats:
            now = Look(**{**look.__dict__, "attempted": second, "accepted": second if not look.error else 0})
        watch, verdict = observe(watch, now.at(float(second)), LIMITS)
        if verdict.health is not Health.WAIT:
            return second, verdict
    return seconds, Verdict(Health.WAIT)


def test_accepted_heartbeats_for_the_soak_are_healthy() -> None:
    """HEALTHY comes when heartbeats were accepted without a break for the soak, and not earlier."""
    second, verdict = judge(Look(), beats=True)
    assert (verdict.health, second) == (Health.HEALTHY, 1 + 25)


@pytest.mark.parametrize(
    ("look", "beats", "reason", "second"),
    [
        (Look(ready=False), False, Reason.NOT_READY, 15),
        (Look(), False, Reason.UNHEALTHY, 30),
        (Look(attempted=3, accepted=3), False, Reason.UNHEALTHY, 30),
        (Look(ticking=False), True, Reason.UNHEALTHY, 0),
        (Look(error="Unauthorized"), True, Reason.UNHEALTHY, 41),
        (Look(pid=None, exhausted=True), False, Reason.CRASH_LOOP, 0),
    ],
    ids=["never ready", "never a beat", "beats stop", "a loop is dead", "refused alone", "attempts over"],
)
def test_what_the_release_did_itself_rejects_it(
    look: Look, reason: Reason, second: int, *, beats: bool
) -> None:
    """Evidence from the release itself fails and rejects it, after its own deadline and not before."""
    found, verdict = judge(look, beats=beats)
    assert (verdict.health, verdict.reason, verdict.rejects) == (Health.FAILED, reason, True)
    assert found == second


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (Look(error="Unreachable", reachable=False), Reason.UNREACHABLE),
        (Look(error="ClockWrong", reachable=True), Reason.CLOCK_WRONG),
        (Look(error="ClockWrong", reachable=False), Reason.CLOCK_WRONG),
    ],
)
def test_what_the_world_did_is_inconclusive(look: Look, reason: Reason) -> None:
    """An outage or a wrong clock is inconclusive after the patience, and never a failure."""
    second, verdict = judge(look, beats=True)
    assert (verdict.health, verdict.reason, verdict.rejects) == (Health.INCONCLUSIVE, reason, False)
    assert second == LIMITS.patience


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (Look(pid=None, other=True), Reason.RESTART_UNPROVEN),
        (Look(pid=None), Reason.RESTART_UNPROVEN),
        (Look(pid=None, exhausted=True, old_boots=True), Reason.ATTEMPTS_EXHAUSTED),
    ],
    ids=["the old agent still runs", "nothing runs", "the host went down"],
)
def test_what_the_host_did_undoes_the_trial_without_rejecting_it(look: Look, reason: Reason) -> None:
    """A manager that does not restart, or a host that goes down, is no evidence against the release."""
    _, verdict = judge(look)
    assert (verdict.health, verdict.reason, verdict.rejects) == (Health.FAILED, reason, False)


def test_an_outage_in_the_soak_begins_it_anew() -> None:
    """The soak counts only heartbeats without a break."""
    watch, verdict = Watch.starting(0.0), Verdict(Health.WAIT)
    for second in range(45):
        broken = second == 20
        look = Look(attempted=second, accepted=second, error="Unreachable" if broken else "", reachable=False)
        watch, verdict = observe(watch, look.at(float(second)), LIMITS)
        assert verdict.health is Health.WAIT, second
    watch, verdict = observe(watch, Look(attempted=46, accepted=46).at(46.0), LIMITS)
    assert verdict.health is Health.HEALTHY


def test_a_third_attempt_that_runs_is_still_judged() -> None:
    """That no attempt is left says nothing against the one that runs."""
    _, verdict = judge(Look(exhausted=True), beats=True)
    assert verdict.health is Health.HEALTHY


def test_three_hangs_are_told_from_three_crashes() -> None:
    """A process that lived until the alarm hung; one that did not crashed."""
    for life, reason in ((9, Reason.NOT_READY), (1, Reason.CRASH_LOOP)):
        watch = Watch.starting(0.0)
        for second in range(life):
            watch, _ = observe(watch, Look(ready=False).at(float(second)), LIMITS)
        _, verdict = observe(watch, Look(pid=None, exhausted=True).at(float(life)), LIMITS)
        assert verdict.reason is reason


@pytest.mark.parametrize(
    ("accepted_since", "at", "wait"),
    [(None, 7.0, 0.5), (0.0, 7.0, 0.5), (0.0, 24.8, 0.2), (0.0, 25.0, 0.5)],
)
def test_the_end_of_the_soak_is_not_slept_through(
    accepted_since: float | None, at: float, wait: float
) -> None:
    """A look falls on the moment at which the soak is over, and no wait is so short that it is none."""
    watch = replace(Watch.starting(0.0), accepted_since=accepted_since)
    assert next_look(watch, at, LIMITS, 0.5) == pytest.approx(wait)

"""The phases of a model server."""

from __future__ import annotations

import pytest

from journeyman.core.model_server import (
    WAKES,
    BackoffPolicy,
    Ended,
    Event,
    Phase,
    Proven,
    Rested,
    RetryDue,
    ServerState,
    Shed,
    Wanted,
    begin,
    step,
)
from journeyman.core.server_failure import Failure, FailureKind, failure_of
from journeyman_updater.contract import WorkerExit

POLICY = BackoffPolicy(max_seconds=300, healthy_seconds=600)


def ended(code: int | None = 1, signal: int | None = None, reason: str = "") -> Ended:
    return Ended(failure_of(WorkerExit(code, signal, 1.0, "nonce"), reason))


LOST = Ended(failure_of(None, ""))
MISSING = Ended(Failure(FailureKind.MISSING, "no such file"))


def after(*events: tuple[float, Event], jitter: float = 0) -> ServerState:
    state = begin(0)
    for now, event in events:
        state = step(state, event, now, jitter, POLICY)
    return state


def test_a_server_is_ready_only_when_proven() -> None:
    """Starting turns into ready by a proof and by nothing else."""
    assert begin(5) == ServerState(Phase.STARTING, 5)
    assert after((3, Proven())) == ServerState(Phase.READY, 3)


def test_waits_double_up_to_the_longest() -> None:
    """Ends in a row are followed by 1, 2, 4 ... 256 and then 300 seconds."""
    state = begin(0)
    waits = []
    for _ in range(12):
        state = step(state, ended(), 100, 0, POLICY)
        assert state.phase is Phase.BACKOFF
        waits.append(state.retry_at - 100)
        state = step(state, RetryDue(), state.retry_at, 0, POLICY)
        assert state.phase is Phase.STARTING
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert state.restarts == 12


def test_a_thousand_failures_still_give_a_finite_wait() -> None:
    """The wait never overflows."""
    assert POLICY.delay_seconds(5000, 0) == 300


@pytest.mark.parametrize(("jitter", "wait"), [(-0.1, 0.9), (0, 1.0), (0.1, 1.1)])
def test_jitter_spreads_the_wait(jitter: float, wait: float) -> None:
    """The wait is multiplied by one plus the jitter."""
    assert after((0, ended()), jitter=jitter).retry_at == pytest.approx(wait)


@pytest.mark.parametrize(("healthy_seconds", "failures"), [(599, 3), (600, 1)])
def test_a_long_healthy_time_forgives(healthy_seconds: float, failures: int) -> None:
    """After ten minutes of being ready the next end counts as the first; a moment earlier it does not."""
    state = after(
        (0, ended()), (1, RetryDue()), (2, ended()), (4, RetryDue()), (5, Proven()),
        (5 + healthy_seconds, ended()),
    )  # fmt: skip
    assert state.failures == failures


def test_time_in_starting_forgives_nothing() -> None:
    """A server that starts for ten minutes has not been healthy."""
    assert after((0, ended()), (1, RetryDue()), (900, ended())).failures == 2


@pytest.mark.parametrize("event", [ended(74), ended(71), ended(78), ended(None, 4), MISSING])
def test_what_cannot_heal_is_not_retried(event: Ended) -> None:
    """A broken model, a missing runtime, a wrong configuration and a foreign processor end in FAILED."""
    state = after((1, event))
    assert state.phase is Phase.FAILED
    assert state.reason
    for later in (RetryDue(), Proven(), ended()):
        assert step(state, later, 999, 0, POLICY) == state


@pytest.mark.parametrize("event", [ended(0), ended(1), ended(70), ended(None, 9), LOST])
def test_everything_else_is_retried(event: Ended) -> None:
    """Crashes, kills, clean ends that nobody asked for and lost shims are followed by another start."""
    assert after((1, Proven()), (2, event)).phase is Phase.BACKOFF


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (ended(74, reason="it is cut off"), "it is cut off"),
        (ended(3), "the server ended with code 3"),
        (ended(None, 9), "the server was ended by signal 9"),
        (ended(None, 4), "the runtime needs instructions that this processor does not have"),
        (LOST, "the server was lost together with its shim"),
    ],
)
def test_each_end_is_explained(event: Ended, line: str) -> None:
    """One line says why: the server's own word first."""
    assert after((1, event)).reason == line


def test_nobody_asks_and_it_sleeps_until_somebody_does() -> None:
    """Sleep is no failure and no restart, and what sleeps is not started by anything but a request."""
    asleep = after((1, Proven()), (50, Rested()))
    assert asleep == ServerState(Phase.ASLEEP, 50, reason=WAKES)
    assert after((50, Rested())) == asleep
    for event in (RetryDue(), Proven(), Shed("AvailBelow3"), LOST, Rested()):
        assert step(asleep, event, 60, 0, POLICY) is asleep
    assert step(asleep, Wanted(), 60, 0, POLICY) == ServerState(Phase.STARTING, 60)


def test_what_failed_and_sleeps_says_so_and_waits_longer_the_next_time() -> None:
    """A model that nobody asks for is not tried again and again, and the reason of its failure is kept."""
    asleep = after((1, LOST), (2, Rested()))
    assert (asleep.phase, asleep.failure) == (Phase.ASLEEP, "")
    assert asleep.reason.startswith(f"{WAKES}; last time: ")
    again = step(step(asleep, Wanted(), 3, 0, POLICY), LOST, 4, 0, POLICY)
    assert again.retry_at - 4 == 2

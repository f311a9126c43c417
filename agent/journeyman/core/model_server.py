"""The life of one model server, without the world: which phase follows what happened.

    STARTING ──Proven──> READY
       │                   │
       └──────Ended────────┴──> BACKOFF ──RetryDue──> STARTING
       │                   │├──> FAILED      nothing but another configuration would help
       └───────Shed────────┴┴──> HELD ──RetryDue──> STARTING

    STARTING, READY, BACKOFF, HELD ──Rested──> ASLEEP ──Wanted──> STARTING

The phase says what to do, so there are no separate actions: in STARTING the model is obtained, the server
brought up and proven, in READY its end is awaited, in BACKOFF the time until `retry_at`, in FAILED nothing;
in HELD, that the host has memory for it again; in ASLEEP, that somebody asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from journeyman.core.server_failure import Failure

FIRST_BACKOFF_SECONDS = 1.0
WAKES = "it starts with the next request"


class Phase(StrEnum):
    """How far a server is."""

    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    FAILED = "failed"
    HELD = "held"
    ASLEEP = "asleep"


@dataclass(frozen=True)
class ServerState:
    """One server at one moment; the times are monotonic seconds.

    Attributes:
        phase: see `Phase`.
        since: when the phase began.
        failures: ends in a row without a long healthy time between them.
        restarts: how often it was started again since the agent started.
        retry_at: when BACKOFF is over.
        reason: why it is in BACKOFF, FAILED, HELD or ASLEEP; one line.
        failure: the same as one word for programs; empty unless it is in BACKOFF or FAILED.
    """

    phase: Phase
    since: float
    failures: int = 0
    restarts: int = 0
    retry_at: float = 0.0
    reason: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Proven:
    """The server has generated a token."""


@dataclass(frozen=True)
class Ended:
    """The server has ended, could not be started, or does not answer any more.

    Attributes:
        failure: why.
    """

    failure: Failure


@dataclass(frozen=True)
class Shed:
    """We ended the server, as the host had no memory left for it.

    Attributes:
        reason: the reason code of the gate.
    """

    reason: str


@dataclass(frozen=True)
class RetryDue:
    """The time of BACKOFF is over, or the host has memory again."""


@dataclass(frozen=True)
class Rested:
    """Nobody asks for the server, so it is not there, and not started before somebody does."""


@dataclass(frozen=True)
class Wanted:
    """Somebody asks for the server."""


Event = Proven | Ended | Shed | RetryDue | Rested | Wanted


@dataclass(frozen=True)
class BackoffPolicy:
    """How long a server that ends is left alone: 1, 2, 4 ... seconds.

    Attributes:
        max_seconds: the longest wait.
        healthy_seconds: a server that was READY this long has its earlier failures forgiven.
    """

    max_seconds: float = 300.0
    healthy_seconds: float = 600.0

    def delay_seconds(self, failures: int, jitter: float) -> float:
        """The wait after so many failures in a row, times 1 + `jitter`."""
        # Past 2^30 the maximum rules anyway, and floats stay finite.
        wait: float = FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 30)
        return min(wait, self.max_seconds) * (1 + jitter)


def start_seconds(at_least: float, weights_bytes: int, bytes_per_second: int) -> float:
    """How long a server may take from its start to its first token; one that is stuck is ended after that.

    Args:
        at_least: what each may take.
        weights_bytes: of its files; their first load is as slow as the disk that they come from.
        bytes_per_second: of the slowest disk that is put up with.
    """
    return at_least + weights_bytes // bytes_per_second


def begin(now: float) -> ServerState:
    """A server that is to be brought up now."""
    return ServerState(Phase.STARTING, now)


def step(state: ServerState, event: Event, now: float, jitter: float, policy: BackoffPolicy) -> ServerState:
    """The state after an event.

    Args:
        state: the state before.
        event: what happened.
        now: monotonic seconds.
        jitter: a random fraction such as -0.1 to 0.1, so that hosts do not retry in step.
        policy: the waits.
    """
    match state.phase, event:
        case Phase.STARTING, Proven():
            state = replace(state, phase=Phase.READY, since=now, reason="", failure="")
        case Phase.STARTING | Phase.READY, Ended():
            state = _after_end(state, event, now, jitter, policy)
        case Phase.STARTING | Phase.READY, Shed():
            reason = f"no memory left for it: {event.reason}"
            state = replace(state, phase=Phase.HELD, since=now, reason=reason, failure="")
        case Phase.BACKOFF | Phase.HELD, RetryDue():
            state = replace(state, phase=Phase.STARTING, since=now, restarts=state.restarts + 1)
        case Phase.STARTING | Phase.READY, Rested():
            state = replace(state, phase=Phase.ASLEEP, since=now, reason=WAKES, failure="")
        case Phase.BACKOFF | Phase.HELD, Rested():
            # Its earlier failures go on counting: the next one is followed by a longer wait.
            reason = f"{WAKES}; last time: {state.reason}"
            state = replace(state, phase=Phase.ASLEEP, since=now, reason=reason, failure="")
        case Phase.ASLEEP, Wanted():
            state = replace(state, phase=Phase.STARTING, since=now, reason="")
    return state


def gives_memory_back(before: Phase, after: Phase) -> bool:
    """Whether a server that changed from one phase to the other leaves its memory to others.

    One in BACKOFF is about to come back: others that took its place would drive it out for good.
    """
    with_memory = {Phase.STARTING, Phase.READY}
    return before in with_memory and after not in {*with_memory, Phase.BACKOFF}


def _after_end(
    state: ServerState, event: Ended, now: float, jitter: float, policy: BackoffPolicy
) -> ServerState:
    reason, failure = event.failure.message, event.failure.kind.value
    if event.failure.is_final:
        return replace(state, phase=Phase.FAILED, since=now, reason=reason, failure=failure)
    healthy = state.phase is Phase.READY and now - state.since >= policy.healthy_seconds
    failures = 1 if healthy else state.failures + 1
    return ServerState(
        phase=Phase.BACKOFF,
        since=now,
        failures=failures,
        restarts=state.restarts,
        retry_at=now + policy.delay_seconds(failures, jitter),
        reason=reason,
        failure=failure,
    )

"""The state machine of one gate: Unknown, Open, Closing, Closed, Opening.

Bad news closes once a mark has been passed for its time; a critical mark has none.  While closed, the
level only rises.  Good news opens after a dwell in which every witness agreed; flapping doubles the dwell.
Silence never opens.  Leaves forcing by a person to `verdict`, and what follows to `admission`, `ladder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from journeyman.core.gates.rules import (
    GateSpec,
    Level,
    Readings,
    Rule,
    Rung,
    known,
    knows_enough,
    unknown_reason,
)

FLAP_WINDOW_SECONDS = 3600.0
FLAPS = 3
LONGEST_DWELL_SECONDS = 1800.0
FRESH_SWEEPS = 2


class Phase(StrEnum):
    """Where a gate stands."""

    UNKNOWN = "Unknown"
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"
    OPENING = "Opening"


@dataclass(frozen=True)
class Reason:
    """Why a gate asks for what it asks.

    Attributes:
        code: CamelCase, of a finite set.
        message: the reading that led to it, for people.
    """

    code: str
    message: str


@dataclass(frozen=True)
class GateState:
    """One gate at one moment; times are seconds of the boot-time clock.

    Attributes:
        phase: where it stands.
        level: what it asks for; while closed it only rises.
        pressing: the level that a reading of this very sweep backs; running work is judged by it.
        pressed_at: when what that reading tells of began: an average knows nothing newer than that.
        since: when `level` or the side (open or closed) last changed.
        reasons: why; the first one is the one that closed it.
        begun: when this life began: at start, and again after each sleep.
        passed_since: since when each mark has been passed, by `rule/rung`.
        good_since: since when all have agreed to open.
        silent_since: since when it has known too little.
        closers: the witnesses that closed it; empty if silence did.
        witnesses: those that were known when it closed; all of them must agree to open.
        closings: when it closed, within the last hour.
        fresh: sweeps that told enough since `begun`.
    """

    phase: Phase
    level: Level
    since: float
    reasons: tuple[Reason, ...]
    begun: float
    passed_since: Mapping[str, float] = field(default_factory=dict)
    good_since: float | None = None
    silent_since: float | None = None
    closers: frozenset[str] = frozenset()
    witnesses: frozenset[str] = frozenset()
    closings: tuple[float, ...] = ()
    fresh: int = 0
    pressing: Level = Level.OPEN
    pressed_at: float = 0.0

    @property
    def closed(self) -> bool:
        return self.phase in {Phase.CLOSED, Phase.OPENING}


AWAITING = Reason("AwaitingReadings", "no fresh readings yet")
SLEPT = Reason("HostSlept", "the host slept; no fresh readings yet")


def at_start(now: float) -> GateState:
    """A gate that has seen nothing: it knows nothing, so it holds."""
    return GateState(Phase.UNKNOWN, Level.HOLD, now, (AWAITING,), now)


def after_sleep(state: GateState, now: float) -> GateState:
    """A gate after a sleep of the host: what it knew is old, but a closed one still owes its dwell."""
    if state.closed:
        return replace(
            state,
            phase=Phase.CLOSED,
            begun=now,
            passed_since={},
            good_since=None,
            fresh=0,
            pressing=Level.OPEN,
        )
    return replace(at_start(now), closings=state.closings, reasons=(SLEPT,))


def dwell_seconds(spec: GateSpec, state: GateState, now: float) -> float:
    """How long all must agree to open: doubled for each closing from the third in an hour on."""
    recent = sum(1 for closing in state.closings if now - closing <= FLAP_WINDOW_SECONDS)
    doubled = spec.open_dwell_seconds * 2.0 ** max(0, recent - FLAPS + 1)
    return max(spec.open_dwell_seconds, min(doubled, LONGEST_DWELL_SECONDS))


def step(spec: GateSpec, state: GateState, readings: Readings, now: float) -> GateState:
    """The gate after one sweep.

    Args:
        spec: the gate.
        state: where it stood.
        readings: by signal, each already judged for its age.
        now: the boot-time clock.
    """
    state = replace(state, passed_since=_passed_since(spec, state, readings, now))
    reached = _reached(spec, state, readings, now)
    pressing = reached[0].rung.level if reached else Level.OPEN
    pressed_at = max((one.began for one in reached if one.rung.level is pressing), default=0.0)
    state = replace(state, pressing=pressing, pressed_at=pressed_at)
    if reached:
        return _close(state, reached, _known_keys(spec, readings), now)
    if not knows_enough(spec, readings):
        return _silent(spec, state, readings, now)
    state = replace(state, silent_since=None)
    if state.closed:
        return _towards_open(spec, state, readings, now)
    if state.phase is Phase.UNKNOWN:
        return _wake(spec, state, readings, now)
    return replace(state, phase=Phase.CLOSING if state.passed_since else Phase.OPEN)


@dataclass(frozen=True)
class _Reached:
    """A rung that counts, and who says so, with a reading of what began then."""

    rung: Rung
    witness: str
    message: str
    began: float


def _marks(spec: GateSpec) -> list[tuple[str, Rule, Rung]]:
    return [
        (f"{rule.signal}/{rung.reason}/{rung.level}", rule, rung)
        for rule in spec.rules
        for rung in rule.rungs
    ]


def _passed_since(spec: GateSpec, state: GateState, readings: Readings, now: float) -> dict[str, float]:
    """A mark stays passed through silence: only a good value takes it back."""
    since = {}
    for key, rule, rung in _marks(spec):
        values = [reading.value for reading in known(readings, rule.signal) if reading.value is not None]
        if any(rule.passed(rung, value) for value in values):
            since[key] = state.passed_since.get(key, now)
        elif not values and key in state.passed_since:
            since[key] = state.passed_since[key]
    return since


def _reached(spec: GateSpec, state: GateState, readings: Readings, now: float) -> list[_Reached]:
    """The rungs that count now, worst first; each is backed by a reading of this moment."""
    found = []
    for key, rule, rung in _marks(spec):
        if now - state.passed_since.get(key, now + 1) < rung.for_seconds:
            continue
        for reading in known(readings, rule.signal):
            if reading.value is not None and rule.passed(rung, reading.value):
                value = f"{reading.name} {reading.value:g} {reading.unit}".rstrip()
                message = f"{value}, mark {rung.mark:g} ({reading.source})"
                began = reading.boot_seconds - reading.over_seconds
                found.append(_Reached(rung, reading.key, message, began))
    return sorted(found, key=lambda one: -one.rung.level)


def _close(state: GateState, reached: list[_Reached], witnesses: frozenset[str], now: float) -> GateState:
    worst = reached[0]
    reason = Reason(worst.rung.reason, worst.message)
    level = max(worst.rung.level, state.level) if state.closed else worst.rung.level
    changed = not state.closed or level is not state.level
    return replace(
        state,
        phase=Phase.CLOSED,
        level=Level(level),
        since=now if changed else state.since,
        # A value is better evidence than the silence before it, so it takes that reason's place.
        reasons=_with_reason(state.reasons, reason) if state.closed and state.closers else (reason,),
        good_since=None,
        silent_since=None,
        closers=(state.closers if state.closed else frozenset()) | {one.witness for one in reached},
        witnesses=(state.witnesses if state.closed else frozenset()) | witnesses,
        closings=state.closings if state.closed else _recent(state.closings, now),
    )


def _silent(spec: GateSpec, state: GateState, readings: Readings, now: float) -> GateState:
    """Too little is known: a closed gate stays closed, and any other one asks for the policy's level."""
    reason = Reason(*unknown_reason(spec, readings))
    silent_since = now if state.silent_since is None else state.silent_since
    state = replace(state, good_since=None, silent_since=silent_since)
    if state.closed:
        return replace(state, phase=Phase.CLOSED)
    if state.phase is Phase.UNKNOWN:
        return _unknown_from_the_start(spec, state, reason, now)
    if now - silent_since < spec.unknown_after_seconds:
        return state
    if spec.unknown_level is Level.OPEN:
        return replace(state, phase=Phase.UNKNOWN, reasons=(reason,), fresh=FRESH_SWEEPS)
    return replace(
        state,
        phase=Phase.CLOSED,
        level=spec.unknown_level,
        since=now,
        reasons=(reason,),
        closers=frozenset(),
        witnesses=frozenset(),
        closings=_recent(state.closings, now),
    )


def _unknown_from_the_start(spec: GateSpec, state: GateState, reason: Reason, now: float) -> GateState:
    """Where the policy lets unknown pass, it does so only after the first sweeps have tried."""
    tried = state.fresh + 1
    if spec.unknown_level is Level.OPEN and tried >= FRESH_SWEEPS:
        since = state.since if state.level is Level.OPEN else now
        return replace(state, level=Level.OPEN, since=since, reasons=(reason,), fresh=FRESH_SWEEPS)
    return replace(state, reasons=(reason,), fresh=min(tried, FRESH_SWEEPS))


def _wake(spec: GateSpec, state: GateState, readings: Readings, now: float) -> GateState:
    """Out of Unknown: by fresh readings alone, and none of them past a mark."""
    if not _all_fresh(spec, readings, state.begun):
        return state
    state = replace(state, fresh=state.fresh + 1)
    if state.fresh < FRESH_SWEEPS or state.passed_since:
        return state
    return replace(state, phase=Phase.OPEN, level=Level.OPEN, since=now, reasons=())


def _towards_open(spec: GateSpec, state: GateState, readings: Readings, now: float) -> GateState:
    if not _all_fresh(spec, readings, state.begun) or not _all_agree(spec, state, readings):
        return replace(state, phase=Phase.CLOSED, good_since=None)
    good_since = now if state.good_since is None else state.good_since
    if now - good_since < dwell_seconds(spec, state, now):
        return replace(state, phase=Phase.OPENING, good_since=good_since)
    return replace(
        state,
        phase=Phase.OPEN,
        level=Level.OPEN,
        since=now,
        reasons=(),
        good_since=None,
        closers=frozenset(),
        witnesses=frozenset(),
    )


def _all_agree(spec: GateSpec, state: GateState, readings: Readings) -> bool:
    """Whether every known witness is at its open mark, and every former witness is still known.

    A gate that only silence closed opens when nothing is past a mark: no value was ever bad.
    """
    if not state.closers:
        return not state.passed_since
    for rule in spec.rules:
        for reading in known(readings, rule.open_signal or rule.signal):
            if reading.value is None or not rule.agrees_to_open(reading.value):
                return False
    return state.witnesses <= _known_keys(spec, readings)


def _all_fresh(spec: GateSpec, readings: Readings, begun: float) -> bool:
    return all(
        any(reading.boot_seconds >= begun for signal in group for reading in known(readings, signal))
        for group in spec.vital
    )


def _known_keys(spec: GateSpec, readings: Readings) -> frozenset[str]:
    signals = {rule.signal for rule in spec.rules} | {rule.open_signal or rule.signal for rule in spec.rules}
    return frozenset(reading.key for signal in signals for reading in known(readings, signal))


def _with_reason(reasons: tuple[Reason, ...], new: Reason) -> tuple[Reason, ...]:
    """The first reason stays first: it is why the gate closed; a new code is added behind it."""
    return reasons if any(reason.code == new.code for reason in reasons) else (*reasons, new)


def _recent(closings: tuple[float, ...], now: float) -> tuple[float, ...]:
    return (*(closing for closing in closings if now - closing <= FLAP_WINDOW_SECONDS), now)

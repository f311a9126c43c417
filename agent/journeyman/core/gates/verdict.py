"""All gates together: what they ask for, why, and when to ask again; and what a person has forced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from journeyman.core.gates.machine import GateState, Phase, Reason, dwell_seconds
from journeyman.core.gates.rules import GateSpec, Level


@dataclass(frozen=True)
class Forced:
    """A person's word on one gate, with an end.

    Attributes:
        level: OPEN or HOLD.
        until: when it ends by itself, wall clock, UTC.
    """

    level: Level
    until: datetime


@dataclass(frozen=True)
class GateVerdict:
    """What one gate asks for.

    Attributes:
        name: the gate.
        phase: where it stands.
        level: what it asks for; a person's word is in it.
        since: since when, on the boot-time clock.
        reasons: why, the one that closed it first.
        scope: `all`, or the capability that it withdraws alone.
        retry_after_seconds: the soonest it could open, or None if it is open.
        until: what a person waits for; empty if nothing.
        dwell_seconds: for how long that must last before it opens; 0 before the first fresh readings.
        forced_until: until when a person's word counts, or None.
        pressing: what a reading of the last sweep asks of running work; the level itself may be older.
        pressed_at: when what that reading tells of began, on the boot-time clock.
    """

    name: str
    phase: Phase
    level: Level
    since: float
    reasons: tuple[Reason, ...]
    scope: str = "all"
    retry_after_seconds: float | None = None
    until: str = ""
    dwell_seconds: float = 0.0
    forced_until: datetime | None = None
    pressing: Level = Level.OPEN
    pressed_at: float = 0.0

    @property
    def uncertain(self) -> bool:
        """Whether it does not know enough, whatever it asks for."""
        return self.phase is Phase.UNKNOWN or (bool(self.reasons) and self.reasons[0].code in SILENCE)


SILENCE = {"SensorStale", "SensorTimeout", "SensorFrozen", "SensorError", "SensorDenied", "SensorUnsupported"}


@dataclass(frozen=True)
class Verdict:
    """What the host can take on at this moment; cheap to ask, as it is only a value."""

    gates: tuple[GateVerdict, ...]

    @property
    def level(self) -> Level:
        """What the gates that concern all work ask for."""
        return self.level_for(())

    @property
    def admits(self) -> bool:
        return self.level is Level.OPEN

    def level_for(self, capabilities: Iterable[str]) -> Level:
        """What the gates ask of work that needs these capabilities, such as `gpu`."""
        return max((gate.level for gate in self._concerning(capabilities)), default=Level.OPEN)

    def level_of(self, gate: str) -> Level:
        """What one gate asks for; OPEN where there is none of that name."""
        return next((one.level for one in self.gates if one.name == gate), Level.OPEN)

    def closed(self, capabilities: Iterable[str] = ()) -> tuple[GateVerdict, ...]:
        """The gates that keep such work away, the one that closed first in front."""
        shut = [gate for gate in self._concerning(capabilities) if gate.level > Level.OPEN]
        return tuple(sorted(shut, key=lambda gate: gate.since))

    def retry_after_seconds(self, capabilities: Iterable[str] = ()) -> float | None:
        """The soonest at which such work could be admitted; None if it could be now."""
        waits = [gate.retry_after_seconds or 0.0 for gate in self.closed(capabilities)]
        return max(waits, default=None)

    def explanation(self, capabilities: Iterable[str] = ()) -> str:
        """One line for people that does not change while nothing changes; empty if nothing is closed."""
        return "; ".join(explain(gate) for gate in self.closed(capabilities))

    def _concerning(self, capabilities: Iterable[str]) -> list[GateVerdict]:
        scopes = {"all", *capabilities}
        return [gate for gate in self.gates if gate.scope in scopes]


def explain(gate: GateVerdict) -> str:
    """One gate in words: reasons, then what it waits for or how long it will be at least."""
    why = ", ".join(reason.code for reason in gate.reasons) or gate.level.name.lower()
    if gate.forced_until is not None:
        return f"{gate.name}: {why}, until {gate.forced_until:%Y-%m-%dT%H:%M:%SZ}"
    if not gate.dwell_seconds:
        return f"{gate.name}: {why}, until fresh readings"
    if gate.until:
        return f"{gate.name}: {why}, until {gate.until} for {gate.dwell_seconds:.0f} s"
    return f"{gate.name}: {why}, retry after {gate.dwell_seconds:.0f} s"


def verdict(
    specs: Iterable[GateSpec],
    states: Mapping[str, GateState],
    forced: Mapping[str, Forced],
    *,
    boot_now: float,
    wall_now: datetime,
) -> Verdict:
    """Puts the gates together.

    Args:
        specs: the gates of this host.
        states: where each stands, by name.
        forced: a person's words, by name; those whose time is over do not count.
        boot_now: the boot-time clock.
        wall_now: the wall clock, for the end of a person's word alone.
    """
    live = {name: word for name, word in forced.items() if wall_now < word.until}
    return Verdict(tuple(_one(spec, states[spec.name], live.get(spec.name), boot_now) for spec in specs))


def _one(spec: GateSpec, state: GateState, word: Forced | None, boot_now: float) -> GateVerdict:
    if word is not None:
        said = "open" if word.level is Level.OPEN else "closed"
        reason = Reason("Forced", f"forced {said} by a person")
        return GateVerdict(
            spec.name, state.phase, word.level, state.since, (reason, *state.reasons), spec.scope,
            forced_until=word.until,
        )  # fmt: skip
    if state.level is Level.OPEN:
        return GateVerdict(spec.name, state.phase, state.level, state.since, state.reasons, spec.scope)
    return GateVerdict(
        spec.name, state.phase, state.level, state.since, state.reasons, spec.scope,
        retry_after_seconds=_soonest(spec, state, boot_now), until=spec.until, pressing=state.pressing,
        pressed_at=state.pressed_at,
        dwell_seconds=dwell_seconds(spec, state, boot_now) if state.closed else 0.0,
    )  # fmt: skip


def _soonest(spec: GateSpec, state: GateState, boot_now: float) -> float:
    """What is left of the dwell; the whole of it while nothing gets better."""
    if not state.closed:
        return 0.0
    dwell = dwell_seconds(spec, state, boot_now)
    return dwell if state.good_since is None else max(0.0, dwell - (boot_now - state.good_since))

"""One sweep through all gates: readings in, verdict and transitions out.

The agent's loop and the replay of a trace run through this very function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from journeyman.core.gates.machine import SLEPT, GateState, Phase, after_sleep, at_start, step
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.reclaim import DISK_GATE, Reclaim, next_reclaim, with_reclaim
from journeyman.core.gates.rules import GateSpec, Level, indexed
from journeyman.core.gates.signals import with_derived
from journeyman.core.gates.sleep import Clocks, awake_hold_left, slept_seconds
from journeyman.core.gates.verdict import Forced, GateVerdict, Verdict, verdict
from journeyman.errors import UsageError
from journeyman.model.readings import Reading

WAKE_GATE = "wake"


@dataclass(frozen=True)
class Transition:
    """A gate that came to ask for something else, or for the same with news: its levels are equal then.

    Attributes:
        gate: its name.
        before, after: levels.
        reason: the code of the new level; empty when it opened.
        message: the reading behind it.
        boot_seconds: when, on the boot-time clock.
    """

    gate: str
    before: Level
    after: Level
    reason: str
    message: str
    boot_seconds: float


@dataclass(frozen=True)
class Engine:
    """All that is remembered from one sweep to the next.

    Attributes:
        specs: the gates of this host.
        states: where each stands, by name.
        forced: a person's words, by name.
        clocks: both clocks at the last sweep; None before the first.
        slept_at: when the last sleep was noticed, boot-time clock.
        slept_total_seconds: all sleep since the start, which time-outs of work do not count.
        readings: those of the last sweep with what was derived from them.
        reclaim: the last clean-up of the disk.
    """

    specs: tuple[GateSpec, ...]
    states: Mapping[str, GateState] = field(default_factory=dict)
    forced: Mapping[str, Forced] = field(default_factory=dict)
    clocks: Clocks | None = None
    slept_at: float | None = None
    slept_total_seconds: float = 0.0
    readings: tuple[Reading, ...] = ()
    reclaim: Reclaim | None = None

    def force(self, gate: str, level: Level, until: datetime) -> Engine:
        """The engine with a person's word on one gate.

        Raises:
            UsageError: this host has no such gate.
        """
        self._check(gate)
        return replace(self, forced={**self.forced, gate: Forced(level, until)})

    def unforce(self, gate: str) -> Engine:
        """The engine without a word on that gate.

        Raises:
            UsageError: this host has no such gate.
        """
        self._check(gate)
        return replace(self, forced={name: word for name, word in self.forced.items() if name != gate})

    def _check(self, gate: str) -> None:
        names = [spec.name for spec in self.specs]
        if gate not in names:
            raise UsageError(f"this host has no gate {gate!r}", f"Its gates are {', '.join(names)}.")


def started(specs: Sequence[GateSpec], boot_now: float) -> Engine:
    """An engine that has seen nothing: every gate is Unknown."""
    return Engine(tuple(specs), {spec.name: at_start(boot_now) for spec in specs})


def sweep(
    engine: Engine, readings: Iterable[Reading], marks: Marks, clocks: Clocks
) -> tuple[Engine, tuple[Transition, ...]]:
    """Takes one sweep of readings in.

    Args:
        engine: what is remembered.
        readings: the newest reading of each source, however old.
        marks: the settings.
        clocks: both clocks now.

    Returns:
        What is remembered next, and what has changed.
    """
    before = engine.states
    engine = _noticed_sleep(engine, marks, clocks)
    derived = with_derived(readings, marks, clocks.boot)
    by_signal = indexed(derived, clocks.boot)
    states = {
        spec.name: step(spec, engine.states[spec.name], by_signal, clocks.boot) for spec in engine.specs
    }
    transitions = tuple(
        _transition(name, before[name], state, clocks.boot)
        for name, state in states.items()
        if state.level is not before[name].level
    )
    reclaim = next_reclaim(engine.reclaim, engine.readings, derived, marks.disk)
    told = _ineffective(engine.reclaim, reclaim, states, clocks.boot)
    if reclaim is not None and reclaim.after_bytes is not None and not _is_shut(states):
        reclaim = replace(reclaim, past=True)
    engine = replace(engine, states=states, clocks=clocks, readings=derived, reclaim=reclaim)
    return engine, (*transitions, *told)


def woken(engine: Engine, boot_now: float) -> Engine:
    """The engine of a host that was asleep: what every gate knew is old."""
    states = {name: after_sleep(state, boot_now) for name, state in engine.states.items()}
    return replace(engine, states=states, slept_at=boot_now)


def judged(engine: Engine, marks: Marks, *, boot_now: float, wall_now: datetime) -> Verdict:
    """The verdict of this moment, with the minute awake that a sleep is followed by."""
    base = verdict(engine.specs, engine.states, engine.forced, boot_now=boot_now, wall_now=wall_now)
    if engine.reclaim is not None:
        base = Verdict(tuple(with_reclaim(gate, engine.reclaim) for gate in base.gates))
    left = awake_hold_left(engine.slept_at, boot_now, marks.awake_seconds)
    if left <= 0:
        return base
    waking = GateVerdict(
        WAKE_GATE,
        Phase.UNKNOWN,
        Level.HOLD,
        engine.slept_at or 0.0,
        (SLEPT,),
        retry_after_seconds=left,
        dwell_seconds=marks.awake_seconds,
    )
    return Verdict((*base.gates, waking))


def _noticed_sleep(engine: Engine, marks: Marks, clocks: Clocks) -> Engine:
    if engine.clocks is None:
        return engine
    slept = slept_seconds(engine.clocks, clocks, marks.sleep_gap_seconds)
    if not slept:
        return engine
    total = engine.slept_total_seconds + slept
    return replace(woken(engine, clocks.boot), slept_total_seconds=total)


def _is_shut(states: Mapping[str, GateState]) -> bool:
    return DISK_GATE in states and states[DISK_GATE].level is not Level.OPEN


def _ineffective(
    before: Reclaim | None, after: Reclaim | None, states: Mapping[str, GateState], boot_now: float
) -> tuple[Transition, ...]:
    """News of a clean-up that turned out to be useless, where there is a gate of the disk."""
    if after is None or not after.ineffective or after == before or DISK_GATE not in states:
        return ()
    level, reason = states[DISK_GATE].level, after.reason
    return (Transition(DISK_GATE, level, level, reason.code, reason.message, boot_now),)


def _transition(name: str, before: GateState, after: GateState, boot_now: float) -> Transition:
    reason = after.reasons[-1] if after.level > Level.OPEN and after.reasons else None
    return Transition(
        name,
        before.level,
        after.level,
        reason.code if reason else "",
        reason.message if reason else "",
        boot_now,
    )

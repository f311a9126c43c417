"""Reads the host and keeps the verdict: one coalesced tick, everybody else asks the cache.

It leaves to others how a sensor is read, what a hold does to the node, and what happens to running work
(`ladder_loop.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import structlog

from journeyman.core.gates.conditions import Told, conditions, updatable
from journeyman.core.gates.engine import Engine, Transition, judged, started, sweep, woken
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.machine import FRESH_SWEEPS, SLEPT, Phase, Reason
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.reclaim import PROMISED
from journeyman.core.gates.report import report
from journeyman.core.gates.rules import GateSpec, Level
from journeyman.core.gates.sleep import Clocks, slept_seconds
from journeyman.core.gates.verdict import Forced, GateVerdict, Verdict
from journeyman.core.holds import Hold, Owner
from journeyman.errors import HostError, UsageError
from journeyman.model.readings import Quality, Reading
from journeyman.ports import Clock, Document, JsonObject
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)

SENSORS_GATE = "sensors"
# A sweep that is this many ticks late tells nothing of now, whatever it said.
OVERDUE_TICKS = 3
LONGEST_START_SECONDS = 10.0
LONGEST_FORCE_SECONDS = 7 * 86_400.0


@dataclass(frozen=True)
class HostGates:
    """What kind of host this is, the gates that it has, and their marks."""

    host: HostClass
    specs: tuple[GateSpec, ...]
    marks: Marks


class Sweep(Protocol):
    """All sensors together; blocking, so it runs in a thread."""

    def run(self, *, boot_now: float, wall_now: datetime, tick_seconds: float) -> list[Reading]:
        """The newest reading of every source, after asking those that are due.  Never raises."""
        ...

    def forget(self) -> None:
        """Makes every sensor due."""
        ...


class GateLoop:
    """The gates of this host.

    Args:
        clock: time.
        clocks: boot-time and monotonic clock together.
        sensors: all sensors.
        gates: the gates of this host.
        busy: whether work runs; ticks are shorter then.
        forced: where a person's words outlive the agent.
        publish: takes what `gates.json` says, after each sweep and each word of a person.
        record: takes the readings of each sweep, the boot-time clock, and how long the host slept before it.
        changed: called when what the node says of itself has changed, to beat soon.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        clocks: Callable[[], Clocks],
        sensors: Sweep,
        gates: HostGates,
        busy: Callable[[], bool],
        forced: Document,
        publish: Callable[[JsonObject], None],
        record: Callable[[Sequence[Reading], float, float], None],
        changed: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._clocks = clocks
        self._sensors = sensors
        self.host = gates.host
        self._marks = gates.marks
        self._busy = busy
        self._forced = forced
        self._publish = publish
        self._record = record
        self._changed = changed
        self._engine = _with_words(started(gates.specs, clocks().boot), forced.load())
        self._late_seconds = 0.0
        self._promised: Reading | None = None
        self._told: tuple[Told, ...] = ()
        self._held_since: datetime | None = None
        self._poke = asyncio.Event()
        self._woke = False
        self.first_sweep_done = asyncio.Event()

    async def run(self) -> None:
        """Sweeps for ever."""
        while True:
            self._poke.clear()
            await self.sweep()
            due = self._clock.monotonic() + self.tick_seconds()
            await happens_within(self._poke, self.tick_seconds(), self._clock)
            self._late_seconds = max(0.0, self._clock.monotonic() - due)

    def woke(self) -> None:
        """The host has said that it was asleep, however short: nothing that is known counts any more."""
        clocks = self._clocks()
        self._engine, self._woke = woken(self._engine, clocks.boot), True
        self._tell(clocks, self._clock.now())
        self._poke.set()

    async def sweep(self) -> None:
        """One tick: asks the sensors that are due, and takes in what they say."""
        clocks, wall_now = self._clocks(), self._clock.now()
        slept = self._slept(clocks)
        if slept:
            log.warning("host_slept", seconds=round(slept))
        if slept or self._woke or self._is_starting():
            # Two fresh sweeps open a gate, and a reading that is looked at twice is none.
            self._sensors.forget()
            self._woke = False
        readings = await asyncio.to_thread(
            self._sensors.run, boot_now=clocks.boot, wall_now=wall_now, tick_seconds=self.tick_seconds()
        )
        promised, self._promised = self._promised, None
        readings = [*readings, self._lag(clocks, wall_now), *filter(None, [promised])]
        self._engine, transitions = sweep(self._engine, readings, self._marks, clocks)
        for transition in transitions:
            _log(transition)
        self._record(readings, clocks.boot, slept)
        self._tell(clocks, wall_now)
        self.first_sweep_done.set()

    def verdict(self) -> Verdict:
        """What the host can take on now, from the last sweep.

        A sweep that is overdue makes it a hold, and so does a sleep of the host that no sweep has seen yet.
        """
        clocks = self._clocks()
        base = judged(self._engine, self._marks, boot_now=clocks.boot, wall_now=self._clock.now())
        swept = self._engine.clocks
        if swept is None:
            return base
        if self._slept(clocks):
            reason = SLEPT
        elif clocks.boot - swept.boot > OVERDUE_TICKS * self._marks.tick_idle_seconds:
            reason = Reason("SensorStale", "the sensors were not read in time")
        else:
            return base
        late = GateVerdict(
            SENSORS_GATE, Phase.UNKNOWN, Level.HOLD, swept.boot, (reason,),
            retry_after_seconds=self._marks.tick_idle_seconds, dwell_seconds=self._marks.tick_idle_seconds,
        )  # fmt: skip
        return Verdict((*base.gates, late))

    def readings(self) -> tuple[Reading, ...]:
        """The readings of the last sweep, with what was derived from them, as they count now."""
        boot_now = self._clocks().boot
        return tuple(reading.at(boot_now) for reading in self._engine.readings)

    def hold(self) -> Hold | None:
        """The hold of the owner `gate`, or None while every gate that concerns all work is open."""
        found = self.verdict()
        if found.admits:
            return None
        return Hold(Owner.GATE, found.explanation(), self._held_since or self._clock.now())

    def promise(self, disk_bytes: float) -> None:
        """Takes note that somebody is about to give so much of the disk back; later sweeps see what came."""
        self._promised = self._own(PROMISED, disk_bytes, "bytes", self._clocks(), self._clock.now())

    def conditions(self) -> tuple[Told, ...]:
        """What the node says of its gates; equal as long as nothing changes."""
        return conditions(self.verdict())

    def updatable(self) -> str:
        """The value of the label `journeyman.dev/updatable`."""
        return updatable(self.verdict())

    def slept_total_seconds(self) -> float:
        """All sleep of the host since the start; time-outs of work do not count it."""
        return self._engine.slept_total_seconds

    def tick_seconds(self) -> float:
        """The time to the next sweep: short only at a start, and while work runs on the plug."""
        if self._is_starting():
            return self._marks.tick_starting_seconds
        short = self._busy() and not self.on_battery()
        return self._marks.tick_working_seconds if short else self._marks.tick_idle_seconds

    def on_battery(self) -> bool:
        """Whether the host is known to live on its battery."""
        return any(
            one.name == "power.on_battery" and one.known and bool(one.value) for one in self._engine.readings
        )

    def _is_starting(self) -> bool:
        """Whether some gate has not had its first fresh sweeps; a source that stays silent does not count."""
        return any(
            state.phase is Phase.UNKNOWN
            and state.fresh < FRESH_SWEEPS
            and self._clocks().boot - state.begun < LONGEST_START_SECONDS
            for state in self._engine.states.values()
        )

    def force(self, gate: str, *, is_open: bool, for_seconds: float) -> None:
        """Takes a person's word on one gate, which outlives the agent and ends by itself.

        Raises:
            UsageError: there is no such gate, or the time is none.
            HostError: it cannot be stored.
        """
        if not 0 < for_seconds <= LONGEST_FORCE_SECONDS:
            raise UsageError("a gate is forced for a time", "Say --for 2h; a week is the longest.")
        until = self._clock.now() + timedelta(seconds=for_seconds)
        self._store(self._engine.force(gate, Level.OPEN if is_open else Level.HOLD, until))
        log.warning("gate_forced", gate=gate, open=is_open, until=until.isoformat())

    def release(self, gate: str) -> None:
        """Takes a person's word back.

        Raises:
            UsageError: there is no such gate.
            HostError: it cannot be stored.
        """
        self._store(self._engine.unforce(gate))
        log.info("gate_released", gate=gate)

    async def force_verb(self, args: JsonObject) -> JsonObject:
        """The verb `gate` of the control socket: `{gate, word: open|close|auto, forSeconds}`.

        Raises:
            UsageError: the arguments are none.
        """
        match args:
            case {"gate": str(gate), "word": "auto"}:
                self.release(gate)
            case {"gate": str(gate), "word": "open" | "close" as word, "forSeconds": int() | float() as time}:
                self.force(gate, is_open=word == "open", for_seconds=float(time))
            case _:
                raise UsageError("the verb gate takes gate, word and forSeconds")
        return self.report()

    def report(self) -> JsonObject:
        """What `gates.json` says, as of now."""
        now = self._clock.now()
        return report(self._engine, self.verdict(), self.host, boot_now=self._clocks().boot, wall_now=now)

    def _slept(self, clocks: Clocks) -> float:
        before = self._engine.clocks
        return 0.0 if before is None else slept_seconds(before, clocks, self._marks.sleep_gap_seconds)

    def _lag(self, clocks: Clocks, wall_now: datetime) -> Reading:
        return self._own("own.lag", self._late_seconds, "seconds", clocks, wall_now)

    def _own(self, name: str, value: float, unit: str, clocks: Clocks, wall_now: datetime) -> Reading:
        return Reading(
            name, value, unit, "gate_loop", Quality.OK, wall_now, clocks.boot,
            OVERDUE_TICKS * self._marks.tick_idle_seconds,
        )  # fmt: skip

    def _store(self, engine: Engine) -> None:
        self._forced.save(_words(engine))
        self._engine = engine
        self._tell(self._clocks(), self._clock.now())

    def _tell(self, clocks: Clocks, wall_now: datetime) -> None:
        """Publishes the report, and asks for a beat where the node has something new to say."""
        found = self.verdict()
        if found.admits:
            self._held_since = None
        elif self._held_since is None:
            self._held_since = wall_now
        told = conditions(found)
        try:
            self._publish(report(self._engine, found, self.host, boot_now=clocks.boot, wall_now=wall_now))
        except HostError as error:
            log.warning("gates_not_published", error=error.message)
        if told != self._told:
            self._told = told
            self._changed()


def _log(transition: Transition) -> None:
    if transition.after is transition.before:
        log.warning("reclaim_ineffective", gate=transition.gate, reading=transition.message)
        return
    log.info(
        "gate_opened" if transition.after is Level.OPEN else "gate_closed",
        gate=transition.gate,
        level=transition.after.name.lower(),
        reason=transition.reason,
        reading=transition.message,
    )


def _words(engine: Engine) -> dict[str, Any]:
    return {
        "forced": {
            name: {"open": word.level is Level.OPEN, "until": word.until.astimezone(UTC).isoformat()}
            for name, word in engine.forced.items()
        }
    }


def _with_words(engine: Engine, stored: JsonObject | None) -> Engine:
    """The words of a person to an earlier agent; what cannot be read is left out."""
    known = {spec.name for spec in engine.specs}
    words = (stored or {}).get("forced", {})
    for name, word in words.items() if isinstance(words, dict) else ():
        try:
            forced = Forced(Level.OPEN if word["open"] else Level.HOLD, datetime.fromisoformat(word["until"]))
        except (KeyError, TypeError, ValueError):
            log.warning("forced_gate_not_read", gate=name)
            continue
        if name in known:
            engine = engine.force(name, forced.level, forced.until)
    return engine

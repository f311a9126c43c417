"""Readings and gates for tests: short to write, with every field as production has it."""

from __future__ import annotations

from datetime import UTC, datetime

from journeyman.core.gates.machine import GateState, at_start, step
from journeyman.core.gates.rules import GateSpec, Level, Rule, Rung, Worse, indexed
from journeyman.model.readings import Quality, Reading

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HEAT = "heat"
HOLD_SECONDS, DWELL_SECONDS = 30.0, 300.0


def reading(
    name: str,
    value: float | None,
    *,
    at: float = 0.0,
    source: str = "test",
    quality: Quality | None = None,
    stale_after: float = float("inf"),
) -> Reading:
    """A reading of that moment; without a value it is an error unless the test says what it is."""
    found = quality or (Quality.OK if value is not None else Quality.ERROR)
    return Reading(name, value, "unit", source, found, NOON, at, stale_after)


def heat_gate(*, unknown_level: Level = Level.HOLD, unknown_after: float = 0.0) -> GateSpec:
    """Holds above 80 for 30 s, suspends above 90 for 30 s, kills above 100, opens at 70 after 300 s."""
    rungs = (
        Rung(Level.HOLD, 80, HOLD_SECONDS, "Warm"),
        Rung(Level.SUSPEND, 90, HOLD_SECONDS, "Hot"),
        Rung(Level.KILL, 100, 0, "Burning"),
    )
    rule = Rule(HEAT, Worse.HIGH, rungs, 70)
    return GateSpec(
        "thermal", (rule,), ((HEAT,),), DWELL_SECONDS,
        unknown_level=unknown_level, unknown_after_seconds=unknown_after, until="cool",
    )  # fmt: skip


class Bench:
    """One gate on a bench: feed it values at times and look at it.

    Args:
        spec: the gate.
        begun: when its life begins.
    """

    def __init__(self, spec: GateSpec, begun: float = 0.0) -> None:
        self.spec = spec
        self.state: GateState = at_start(begun)

    def feed(self, at: float, *values: float | None) -> GateState:
        """One sweep with one value a source, named by their order; None is a sensor that failed."""
        readings = [
            reading(HEAT, value, at=at, source=f"zone{number}") for number, value in enumerate(values)
        ]
        self.state = step(self.spec, self.state, indexed(readings, at), at)
        return self.state

    def feed_every(self, seconds: float, start: float, end: float, *values: float | None) -> GateState:
        """Sweeps from `start` to `end`, both included."""
        at = start
        while at <= end:
            self.feed(at, *values)
            at += seconds
        return self.state


def opened_bench(spec: GateSpec | None = None) -> Bench:
    """A gate that two cool sweeps have opened, at second 5."""
    bench = Bench(spec or heat_gate())
    bench.feed_every(5, 0, 5, 50.0)
    assert bench.state.level is Level.OPEN
    return bench

"""What the gates cost: a verdict from the cache, one sweep of a big host, and how often they wake it up."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.figures import Figure, median_of
from journeyman.adapters.logs import configure_logs
from journeyman.adapters.sensors.sweep import SensorSweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.loops.gate_loop import GateLoop, HostGates
from journeyman.ports import JsonObject, Sensor
from tests.support.big_host import big_host_sensors

VERDICTS = 20_000
SWEEPS = 30
HOUR_SECONDS = 3600.0
MARKS = Marks()


class HourOverError(Exception):
    """The hour that is watched is over."""


class HastyClock:
    """A clock whose sleeps take no time, for one hour; it counts them: each would be a wake-up."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.sleeps = 0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.sleeps += 1
        if self.seconds > 1000.0 + HOUR_SECONDS:
            raise HourOverError


class NothingForced:
    """Implements `Document`: no person has said anything."""

    def load(self) -> JsonObject | None:
        return None

    def save(self, value: object) -> None:
        del value


def measure() -> list[Figure]:
    """Takes some seconds."""
    configure_logs(level="error", format_name="json")
    with tempfile.TemporaryDirectory() as folder:
        plugged, battery = Path(folder) / "plugged", Path(folder) / "battery"
        clock = HastyClock()
        loop = _loop(clock, big_host_sensors(battery, on_battery=True))
        wake_ups = asyncio.run(_wake_ups(loop, clock))
        return [
            Figure("verdict from the cache, p99", _p99_ms(loop), "ms", 1),
            _sweeps(big_host_sensors(plugged)),
            Figure("wake-ups in 15 s, on battery", wake_ups, "", 1),
        ]


def _loop(clock: HastyClock, sensors: list[Sensor]) -> GateLoop:
    specs = gate_specs(HostClass.LINUX_LAPTOP, MARKS, ["state"], gpu=True)
    return GateLoop(
        clock=clock,
        clocks=lambda: Clocks(clock.seconds, clock.seconds),
        sensors=SensorSweep(sensors),
        gates=HostGates(HostClass.LINUX_LAPTOP, specs, MARKS),
        busy=lambda: True,
        forced=NothingForced(),
        publish=lambda _: None,
        record=lambda *_: None,
        changed=lambda: None,
    )


async def _wake_ups(loop: GateLoop, clock: HastyClock) -> float:
    """The first sweeps of a start aside, which come within a second."""
    await loop.sweep()
    await loop.sweep()
    begun, before = clock.seconds, clock.sleeps
    with contextlib.suppress(HourOverError):
        await loop.run()
    return round(15 * (clock.sleeps - before) / (clock.seconds - begun), 2)


def _p99_ms(loop: GateLoop) -> float:
    spent = []
    for _ in range(VERDICTS):
        begun = time.perf_counter()
        loop.verdict()
        spent.append(time.perf_counter() - begun)
    return round(1000 * sorted(spent)[int(VERDICTS * 0.99)], 3)


def _sweeps(sensors: list[Sensor]) -> Figure:
    """CPU of the sweeping thread; the first one finds out what is where."""
    sweep, spent = SensorSweep(sensors), []
    for number in range(SWEEPS):
        begun = time.thread_time()
        sweep.run(boot_now=1000.0 + 60 * number, wall_now=datetime.fromtimestamp(0, UTC), tick_seconds=5)
        spent.append(1000 * (time.thread_time() - begun))
    return median_of("CPU of a full sweep of a big host", spent[1:], "ms", 30)

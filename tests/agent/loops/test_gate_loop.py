"""The gate loop: ticks, the cached verdict, forcing, and what it tells others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.core.holds import Owner
from journeyman.errors import UsageError
from journeyman.loops.gate_loop import GateLoop, HostGates
from journeyman.model.readings import Quality, Reading
from journeyman.ports import JsonObject
from tests.support.clock import FakeClock

MARKS = Marks()
GOOD = {"memory.available": 8e9, "memory.total": 16e9, "disk.state.free": 2e11, "disk.state.total": 5e11,
        "thermal.cpu_margin": 40.0, "power.on_battery": 0.0}  # fmt: skip


class ScriptedSweep:
    """Implements `Sweep`: every sensor says what the test has laid down; it counts how often it was asked."""

    def __init__(self) -> None:
        self.values: dict[str, float | None] = dict(GOOD)
        self.swept_at: list[float] = []
        self.forgotten = 0

    def run(self, *, boot_now: float, wall_now: datetime, tick_seconds: float) -> list[Reading]:
        self.swept_at.append(boot_now)
        return [
            Reading(
                name,
                value,
                "",
                "test",
                Quality.ERROR if value is None else Quality.OK,
                wall_now,
                boot_now,
                45,
            )
            for name, value in self.values.items()
        ]

    def forget(self) -> None:
        self.forgotten += 1


class Memory:
    """Implements `Document` in memory."""

    def __init__(self) -> None:
        self.value: JsonObject | None = None

    def load(self) -> JsonObject | None:
        return self.value

    def save(self, value: Mapping[str, Any]) -> None:
        self.value = dict(value)


class Bench:
    """A loop on a fake day."""

    def __init__(self, *, forced: Memory | None = None, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.asleep = 0.0
        self.sensors = ScriptedSweep()
        self.busy = False
        self.forced = forced or Memory()
        self.published: list[JsonObject] = []
        self.recorded: list[tuple[float, float]] = []
        self.changes = 0
        specs = gate_specs(HostClass.LINUX_LAPTOP, MARKS, ["state"])
        self.loop = GateLoop(
            clock=self.clock,
            clocks=lambda: Clocks(self.clock.monotonic() + self.asleep, self.clock.monotonic()),
            sensors=self.sensors,
            gates=HostGates(HostClass.LINUX_LAPTOP, specs, MARKS),
            busy=lambda: self.busy,
            forced=self.forced,
            publish=self.published.append,
            record=self.record,
            changed=self.changed,
        )

    def record(self, readings: Sequence[Reading], boot_now: float, slept: float) -> None:
        self.recorded.append((boot_now, slept))

    def changed(self) -> None:
        self.changes += 1

    async def sweeps(self, count: int, *, every: float = 15.0) -> None:
        """Sweeps as `run` would, without waiting for real threads on a fake clock."""
        for _ in range(count):
            self.clock.move(every)
            await self.loop.sweep()


async def opened() -> Bench:
    bench = Bench()
    await bench.sweeps(2)
    assert bench.loop.verdict().admits
    return bench


def test_a_sleep_holds_at_once_before_any_sweep_has_seen_it() -> None:
    """Whoever asks first after the lid opens is not told what was true before it closed."""

    async def play() -> None:
        bench = await opened()
        bench.asleep += 31
        assert bench.loop.hold() is not None
        assert "HostSlept" in bench.loop.verdict().explanation()

    asyncio.run(play())


def test_before_the_first_sweep_nothing_is_admitted() -> None:
    """The agent is ready only after its sensors have been asked."""

    async def play() -> None:
        bench = Bench()
        assert not bench.loop.verdict().admits
        hold = bench.loop.hold()
        assert hold is not None
        assert hold.owner is Owner.GATE
        await bench.loop.sweep()
        assert bench.loop.first_sweep_done.is_set()

    asyncio.run(play())


def test_a_transition_changes_the_hold_the_conditions_and_the_label() -> None:
    """And asks for one beat, not for one at each tick."""

    async def play() -> None:
        bench = await opened()
        assert bench.loop.hold() is None
        before = bench.changes
        bench.sensors.values["power.on_battery"] = 1.0
        await bench.sweeps(2)
        hold = bench.loop.hold()
        assert hold is not None
        assert "power: OnBattery, until plugged-in for 300 s" in hold.reason
        assert bench.loop.updatable() == "false"
        assert ("PowerLow", "True") in [(one.type, one.status.value) for one in bench.loop.conditions()]
        assert bench.changes == before + 1
        since = hold.since
        await bench.sweeps(3)
        again = bench.loop.hold()
        assert again is not None
        assert again.since == since

    asyncio.run(play())


def test_sweeps_are_short_only_while_work_runs_on_the_plug() -> None:
    """Five seconds working, fifteen idle or on battery."""

    async def play() -> None:
        bench = await opened()
        assert bench.loop.tick_seconds() == 15
        bench.busy = True
        assert bench.loop.tick_seconds() == 5
        bench.sensors.values["power.on_battery"] = 1.0
        await bench.sweeps(1)
        assert bench.loop.tick_seconds() == 15

    asyncio.run(play())


def test_one_wake_up_in_fifteen_seconds() -> None:
    """All sensors, the report and the ring share one tick: 20 in five minutes, and nothing in between."""

    async def play() -> None:
        clock = CountingClock(stop_after=20)
        bench = Bench(clock=clock)
        running = asyncio.create_task(bench.loop.run())
        await asyncio.wait_for(clock.stopped.wait(), 10)
        running.cancel()
        # The second sweep of a start comes after a second, so that an agent is of use at once.
        assert clock.slept == [1] + [15] * 19
        assert len(bench.sensors.swept_at) == 20

    asyncio.run(play())


class CountingClock(FakeClock):
    """Time passes as soon as somebody waits for it, and stops after so many waits."""

    def __init__(self, *, stop_after: int) -> None:
        super().__init__()
        self.slept: list[float] = []
        self.stopped = asyncio.Event()
        self._stop_after = stop_after

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.move(seconds)
        if len(self.slept) == self._stop_after:
            self.stopped.set()
            await asyncio.Event().wait()


def test_an_overdue_sweep_is_a_hold() -> None:
    """A sensor thread that hangs for ever does not leave the last good verdict standing."""

    async def play() -> None:
        bench = await opened()
        bench.clock.move(46)
        found = bench.loop.verdict()
        assert not found.admits
        assert "sensors: SensorStale" in found.explanation()

    asyncio.run(play())


def test_a_sleep_asks_every_sensor_and_holds() -> None:
    """Both clocks part by an hour: gates are Unknown, sensors are due, and the ring knows it."""

    async def play() -> None:
        bench = await opened()
        before = bench.sensors.forgotten
        bench.asleep = 3600
        await bench.sweeps(1)
        assert bench.sensors.forgotten == before + 1
        assert bench.recorded[-1][1] == pytest.approx(3600)
        assert not bench.loop.verdict().admits
        assert bench.loop.slept_total_seconds() == pytest.approx(3600)
        await bench.sweeps(5)
        assert bench.loop.verdict().admits

    asyncio.run(play())


def test_a_persons_word_outlives_the_agent_and_ends_by_itself() -> None:
    """The next agent reads it; after its end it counts no more."""

    async def play() -> None:
        bench = await opened()
        bench.loop.force("memory", is_open=False, for_seconds=3600)
        assert not bench.loop.verdict().admits
        heir = Bench(forced=bench.forced)
        heir.clock.set_wall(bench.clock.now())
        await heir.sweeps(2)
        assert "memory: Forced" in heir.loop.verdict().explanation()
        heir.clock.set_wall(bench.clock.now() + timedelta(hours=2))
        assert heir.loop.verdict().admits

    asyncio.run(play())


@pytest.mark.parametrize(
    "stored",
    [
        {"forced": {"memory": {"open": True}}},
        {"forced": {"gone": {"open": True, "until": "2027-01-01T00:00:00+00:00"}}},
        {"forced": []},
        {},
    ],
)
def test_a_stored_word_that_cannot_be_read_is_left_out(stored: JsonObject) -> None:
    """A file of another release never stops an agent."""
    memory = Memory()
    memory.value = stored
    assert not Bench(forced=memory).loop.verdict().closed()[0].forced_until


def test_the_verb_of_the_control_socket() -> None:
    """open, close and auto by word; what is none of these is refused before anything changes."""

    async def play() -> None:
        bench = await opened()
        found = await bench.loop.force_verb({"gate": "thermal", "word": "close", "forSeconds": 60})
        assert found["admits"] is False
        found = await bench.loop.force_verb({"gate": "thermal", "word": "auto"})
        assert found["admits"] is True
        for wrong in (
            {},
            {"gate": "thermal", "word": "ajar", "forSeconds": 60},
            {"gate": "thermal", "word": "open"},
        ):
            with pytest.raises(UsageError):
                await bench.loop.force_verb(wrong)
        for seconds in (0, -1, 8 * 86_400):
            with pytest.raises(UsageError):
                await bench.loop.force_verb({"gate": "thermal", "word": "open", "forSeconds": seconds})

    asyncio.run(play())


def test_the_report_says_what_people_need() -> None:
    """Readings with ages and quality, marks, since when, and when it may open."""

    async def play() -> None:
        bench = await opened()
        bench.sensors.values["thermal.cpu_margin"] = 0.5
        await bench.sweeps(2)
        found = bench.published[-1]
        gate = next(one for one in found["gates"] if one["name"] == "thermal")
        assert (gate["level"], gate["until"], gate["retryAfterSeconds"]) == ("drain", "cool", 300)
        assert gate["marks"][0]["signal"] == "thermal.cpu_margin"
        one = next(one for one in found["readings"] if one["name"] == "thermal.cpu_margin")
        assert (one["value"], one["quality"], one["ageSeconds"]) == (0.5, "ok", 0.0)

    asyncio.run(play())


def test_a_verdict_from_the_cache_is_cheap() -> None:
    """p99 under a millisecond of CPU time, with every gate of a laptop closed."""

    async def play() -> None:
        bench = await opened()
        bench.sensors.values.update(
            {"thermal.cpu_margin": 0.5, "power.on_battery": 1, "memory.available": 1e6}
        )
        await bench.sweeps(3)
        assert bench.loop.verdict().level is Level.KILL
        spent = []
        for _ in range(1000):
            begun = time.thread_time()
            bench.loop.verdict().explanation()
            spent.append(time.thread_time() - begun)
        assert sorted(spent)[990] < 0.001

    asyncio.run(play())


def test_what_a_clean_up_promised_is_recorded_and_judged() -> None:
    """The sweep after the promise has it among its readings, once, for the trace and for the gates alike."""

    async def play() -> None:
        bench = await opened()
        bench.loop.promise(5e9)
        for promised in ([5e9], []):
            await bench.sweeps(1)
            names = [one.value for one in bench.loop.readings() if one.name == "disk.reclaim_promised"]
            assert names == promised

    asyncio.run(play())

"""What the marks make of the hosts of bug reports, class by class."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest

from journeyman.core.gates.admission import Need, Ticket, admit
from journeyman.core.gates.engine import Engine, judged, started, sweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import AdmissionMarks, Marks, PowerMarks, UserMarks
from journeyman.core.gates.replay import replay
from journeyman.core.gates.room import room
from journeyman.core.gates.rules import Level
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.core.gates.verdict import Verdict
from journeyman.model.readings import Quality
from tests.support.gates import NOON, reading

GIB, GB, MIB = 1 << 30, 10**9, 1 << 20
MARKS = Marks()
Values = Mapping[str, float | None]

FINE: dict[str, float | None] = {
    "memory.available": 8 * GIB, "memory.total": 16 * GIB, "disk.state.free": 200 * GB,
    "disk.state.total": 500 * GB,
}  # fmt: skip
MAC: dict[str, float | None] = {
    **FINE, "memory.total": 64 * GIB, "memory.pressure_level": 1, "memory.swap_used": 0,
    "memory.compressed": 0, "memory.swap_in_rate": 0, "thermal.pressure_level": 0, "power.on_battery": 0,
    "power.charge": 90,
}  # fmt: skip
PHONE: dict[str, float | None] = {
    **FINE, "power.on_battery": 0, "power.charge": 85, "battery.temperature": 30, "battery.overheat": 0,
    "own.processes": 3,
}  # fmt: skip
LAPTOP: dict[str, float | None] = {
    **FINE,
    "power.on_battery": 0,
    "power.charge": 90,
    "thermal.cpu_margin": 40,
}


class Bench:
    """All gates of one class of host, swept every five seconds."""

    def __init__(self, host: HostClass, values: Values, marks: Marks = MARKS, *, gpu: bool = False) -> None:
        self.marks = marks
        self.now = 0.0
        self.values = dict(values)
        self.engine: Engine = started(gate_specs(host, marks, ["state"], gpu=gpu), 0.0)
        self.run(10)

    def run(self, seconds: float, **changes: float | None) -> Verdict:
        """Sweeps for that long with these values from now on; dots are spelled with two underscores."""
        self.values.update({name.replace("__", "."): value for name, value in changes.items()})
        end = self.now + seconds
        while self.now <= end:
            found = [
                reading(name, value, at=self.now, quality=None if value is not None else Quality.ERROR)
                for name, value in self.values.items()
            ]
            self.engine, _ = sweep(self.engine, found, self.marks, Clocks(self.now, self.now))
            self.now += 5
        return judged(self.engine, self.marks, boot_now=self.now, wall_now=NOON)

    def level(self, gate: str) -> Level:
        return self.engine.states[gate].level

    def reason(self, gate: str) -> str:
        return self.engine.states[gate].reasons[0].code


@pytest.mark.parametrize(
    ("host", "values"),
    [
        (HostClass.MAC_LAPTOP, {**MAC, "sleep.lid_closed": 0}),
        (HostClass.MAC_DESKTOP, MAC),
        (HostClass.LINUX_LAPTOP, LAPTOP),
        (HostClass.LINUX_SERVER, {**FINE, "thermal.cpu_margin": 40}),
        (HostClass.PI, {**FINE, "thermal.cpu": 50, "pi.throttled_now": 0}),
        (HostClass.PHONE_TERMUX, PHONE),
        (HostClass.PHONE_PROOT, PHONE),
        (HostClass.CONTAINER, FINE),
    ],
)
def test_a_healthy_host_of_each_class_takes_work(host: HostClass, values: Values) -> None:
    """Ten seconds after the start, with nothing wrong, nothing holds."""
    assert Bench(host, values).run(5).admits


@pytest.mark.parametrize("host", list(HostClass))
def test_a_host_that_knows_nothing_takes_no_work(host: HostClass) -> None:
    """No class of host has a path from missing sensors to "fine"."""
    assert not Bench(host, {}).run(600).admits


@pytest.mark.parametrize(
    ("unused", "swap_mib"),
    [pytest.param(82 * MIB, 0, id="sutando#1560"), pytest.param(2 * GIB, 1812, id="nodeterm#135")],
)
def test_few_free_bytes_on_a_calm_mac_hold_nothing(unused: float, swap_mib: float) -> None:
    """82 MB unused, or 82 % in use with a little swap: the level is normal and nothing comes back in."""
    bench = Bench(
        HostClass.MAC_DESKTOP, {**MAC, "memory.available": unused, "memory.swap_used": swap_mib * MIB}
    )
    assert bench.run(60).admits


def test_a_mac_that_pages_is_drained_although_its_level_is_normal() -> None:
    """continuum#3877: 40 GB swapped of 64 with swap-ins, level 1: decode at one token a second."""
    bench = Bench(HostClass.MAC_DESKTOP, MAC)
    bench.run(30, memory__swap_used=40 * GIB, memory__swap_in_rate=900)
    assert (bench.level("memory"), bench.reason("memory")) == (Level.DRAIN, "SwapOfRAMHigh")


def test_compressed_memory_holds_only_while_pages_come_back_in() -> None:
    """sourceconvert#25: 22.6 GB of 64 compressed is fine at rest and is not under swap-ins."""
    bench = Bench(HostClass.MAC_DESKTOP, {**MAC, "memory.compressed": 22.6 * GIB})
    assert bench.run(60).admits
    bench.run(30, memory__swap_in_rate=100)
    assert bench.level("memory") is Level.HOLD


def test_the_worse_of_level_and_canary_counts() -> None:
    """MacThrottle#19, Hot#73: 105 degrees and falling clocks under a level that says Nominal."""
    bench = Bench(HostClass.MAC_LAPTOP, {**MAC, "thermal.canary": 100})
    bench.run(40, thermal__canary=45)
    assert (bench.level("thermal"), bench.reason("thermal")) == (Level.SUSPEND, "ThroughputFell")


def test_a_mac_falls_back_from_level_to_canary() -> None:
    """Without any heat signal it holds; with its own throughput as one it works."""
    blind = {**MAC, "thermal.pressure_level": None}
    assert not Bench(HostClass.MAC_LAPTOP, blind).run(60).admits
    assert Bench(HostClass.MAC_LAPTOP, {**blind, "thermal.canary": 97}).run(60).admits


def test_a_closed_lid_holds() -> None:
    """orca#20194: no claim while the machine may fall asleep."""
    bench = Bench(HostClass.MAC_LAPTOP, {**MAC, "sleep.lid_closed": 0})
    assert bench.run(5, sleep__lid_closed=1).explanation().startswith("sleep: LidClosed")


def test_a_fallen_plug_holds_within_half_a_minute_and_then_suspends() -> None:
    """BOINC#4192 computed on for more than a minute."""
    bench = Bench(HostClass.LINUX_LAPTOP, LAPTOP)
    bench.run(20, power__on_battery=1)
    assert bench.level("power") is Level.HOLD
    bench.run(120)
    assert bench.level("power") is Level.SUSPEND
    bench.run(5, power__charge=25)
    assert bench.level("power") is Level.DRAIN


def test_where_battery_is_allowed_only_its_charge_counts() -> None:
    """`battery_ok` leaves the floors in place."""
    bench = Bench(HostClass.LINUX_LAPTOP, LAPTOP, Marks(power=PowerMarks(battery_ok=True)))
    assert bench.run(600, power__on_battery=1).admits
    bench.run(5, power__charge=29)
    assert bench.level("power") is Level.DRAIN


def test_a_low_charge_on_the_plug_is_no_reason_to_stop() -> None:
    """What is charging is safe."""
    assert Bench(HostClass.LINUX_LAPTOP, {**LAPTOP, "power.charge": 5}).run(60).admits


def test_a_phone_below_its_charge_does_not_flap() -> None:
    """BOINC#5305, #5310: a charge around the limit resumed at each poll; ours stays closed."""
    samples = [{"t": t, "set": {**PHONE, "power.charge": 59.5 + t // 60 % 2}} for t in range(0, 1800, 15)]
    lines = map(json.dumps, [{"hostClass": "phone-termux", "workDirectories": ["state"]}, *samples])
    moves = [one for one in replay(lines, MARKS) if one.transition.gate == "power"]
    assert len(moves) <= 2


def test_zero_charge_and_missing_temperature_are_bad_news() -> None:
    """BOINC takes a charge of 0 for unknown and a missing temperature for cool; both are reasons to stop."""
    empty = Bench(HostClass.PHONE_TERMUX, PHONE)
    empty.run(5, power__charge=0)
    assert empty.level("power") is Level.KILL
    blind = Bench(HostClass.PHONE_TERMUX, PHONE)
    blind.run(185, battery__temperature=None)
    assert blind.level("thermal") is Level.HOLD


@pytest.mark.parametrize(
    ("celsius", "level"), [(38.5, Level.HOLD), (42, Level.SUSPEND), (45, Level.DRAIN), (48, Level.KILL)]
)
def test_a_warm_phone_climbs_the_ladder(celsius: float, level: Level) -> None:
    """Its battery is the only thermometer that most phones give us."""
    bench = Bench(HostClass.PHONE_PROOT, PHONE)
    bench.run(5, battery__temperature=celsius)
    assert bench.level("thermal") is level


def test_zram_is_no_spare_memory() -> None:
    """earlyoom#71: 4 MiB available with 81 % of the swap free never acted; stall or bytes alone is enough."""
    by_bytes = Bench(HostClass.LINUX_SERVER, {**FINE, "thermal.cpu": 40})
    by_bytes.run(5, memory__available=4 * MIB, memory__swap_used=1)
    assert by_bytes.level("memory") is Level.KILL
    by_stall = Bench(HostClass.LINUX_SERVER, {**FINE, "thermal.cpu": 40, "memory.stall": 0})
    by_stall.run(15, memory__stall=60)
    assert by_stall.level("memory") is Level.KILL


def test_under_voltage_is_not_heat() -> None:
    """firmware#615: 0x50005 at 38 degrees is a weak supply, after half a minute of it."""
    bench = Bench(HostClass.PI, {**FINE, "thermal.cpu": 38, "pi.throttled_now": 0, "pi.under_voltage_now": 0})
    bench.run(40, pi__under_voltage_now=1)
    assert (bench.level("thermal"), bench.reason("thermal")) == (Level.HOLD, "UnderVoltage")


def test_all_allocated_btrfs_is_closed_with_half_of_it_free() -> None:
    """netdata#3095, btrfs-todo#61: 41 % free by statvfs, and nothing can be written."""
    bench = Bench(
        HostClass.CONTAINER, {**FINE, "disk.state.unallocated": 5 * GIB, "disk.state.metadata_used": 93}
    )
    assert bench.run(5).admits
    bench.run(5, disk__state__unallocated=0)
    assert bench.reason("disk") == "MetadataFull"


def disk_room(free: float, total: float, usage: float | None) -> tuple[bool, float | None]:
    values = {**MAC, "disk.state.free": free, "disk.state.total": total, "disk.state.important_usage": usage}
    bench = Bench(HostClass.MAC_DESKTOP, values)
    admits = bench.run(10).admits
    return admits, room(bench.engine.readings, MARKS, ["state"], cpus=8, slots=4).disk_bytes


@pytest.mark.parametrize(
    ("free", "total", "usage"),
    [
        pytest.param(40.7 * GB, 926 * GB, 120 * GB, id="gastown#3854"),
        pytest.param(0.04977 * 1000 * GB, 1000 * GB, 200 * GB, id="syncthing#5976"),
        pytest.param(32 * GB, 1000 * GB, 90 * GB, id="pymobiledevice3#1769"),
    ],
)
def test_purgeable_space_lets_small_work_in_and_large_work_out(
    free: float, total: float, usage: float
) -> None:
    """A Mac whose rest is purgeable stays open, with room for two gigabytes of work and no more."""
    assert disk_room(free, total, usage) == (True, 2 * GB)


def test_purgeable_space_is_not_counted_as_free() -> None:
    """fleet#30856: without the second number, or with too little of it, the gate closes."""
    assert disk_room(32 * GB, 1000 * GB, None) == (False, 0)
    assert disk_room(32 * GB, 1000 * GB, 40 * GB) == (False, 0)


def test_work_on_a_disk_with_room_gets_what_is_above_the_reserve() -> None:
    """200 GB free of 500 keep 25 back."""
    assert disk_room(200 * GB, 500 * GB, None) == (True, 175 * GB)


@pytest.mark.parametrize(
    ("shared", "available", "budget"),
    [
        pytest.param(62 * GIB, 40 * GIB, 40 * GIB - MARKS.memory.reserve_bytes, id="ollama#13107"),
        pytest.param(8 * GIB, 40 * GIB, 8 * GIB, id="llama.cpp#19818"),
    ],
)
def test_shared_gpu_memory_is_never_counted_twice(shared: float, available: float, budget: float) -> None:
    """The budget of a unified GPU is the smaller of its window and what the host can spare."""
    found = [
        reading("gpu.shared_free", shared),
        reading("memory.available", available),
        reading("memory.total", 64 * GIB),
    ]
    assert room(found, MARKS, [], cpus=8, slots=1).vram_bytes == budget


def test_a_model_that_does_not_fit_a_phone_is_refused() -> None:
    """termux-app#4194: 1.2 of 7.3 GiB available, and a 2 GiB model killed the app."""
    found = [reading("memory.available", 1.2 * GIB), reading("memory.total", 7.3 * GIB),
             reading("disk.state.free", 20 * GB), reading("disk.state.total", 100 * GB)]  # fmt: skip
    left = room(found, MARKS, ["state"], cpus=8, slots=1)
    answer = admit(
        [Ticket("model", "me", Need(ram_bytes=2 * GIB), 0)], [], left, Verdict(()), 0, AdmissionMarks()
    )
    assert answer.denied[0].code == "NoRam"


def test_the_gate_that_closed_first_is_the_reason() -> None:
    """BOINC#6476: people are told what came first, and all of it."""
    bench = Bench(HostClass.LINUX_LAPTOP, LAPTOP)
    bench.run(20, power__on_battery=1)
    found = bench.run(60, thermal__cpu_margin=5)
    assert [gate.name for gate in found.closed()] == ["power", "thermal"]


def test_an_unknown_user_holds_a_host_that_yields_and_no_other() -> None:
    """BOINC#1187, #6913: under Wayland idle is never or always; unknown is neither."""
    values = {**LAPTOP, "user.idle": None}
    assert Bench(HostClass.LINUX_LAPTOP, values).run(60).admits
    assert not Bench(HostClass.LINUX_LAPTOP, values, Marks(user=UserMarks(policy="yield"))).run(60).admits


def test_our_own_load_is_no_reason_to_pause() -> None:
    """fah-issues#1483: a client that paused for the load of its own work; no gate looks at the load."""
    for host in HostClass:
        signals: Sequence[str] = [
            rule.signal for spec in gate_specs(host, MARKS, ["state"], gpu=True) for rule in spec.rules
        ]
        assert "own.load" not in signals


def test_a_loop_that_comes_late_is_held_back() -> None:
    """termux-packages#4145: `sleep 3` took 20 s with the screen off."""
    bench = Bench(HostClass.PHONE_TERMUX, {**PHONE, "own.lag": 0})
    bench.run(15, own__lag=17)
    assert bench.reason("lag") == "DozeLag"


def test_a_phone_with_too_many_processes_takes_no_more() -> None:
    """Android kills beyond 32 of all apps together; we stay at ten."""
    bench = Bench(HostClass.PHONE_TERMUX, PHONE)
    bench.run(5, own__processes=21)
    assert bench.level("processes") is Level.HOLD

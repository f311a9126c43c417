"""Which gates a host has, from its class and the marks of the settings."""

from __future__ import annotations

from collections.abc import Sequence

from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.rules import GateSpec, Level, Rule, Rung, Worse

HOLD, SUSPEND, DRAIN, KILL = Level.HOLD, Level.SUSPEND, Level.DRAIN, Level.KILL


def gate_specs(
    host: HostClass,
    marks: Marks,
    work_directories: Sequence[str],
    *,
    gpu: bool = False,
    link: bool = False,
) -> tuple[GateSpec, ...]:
    """The gates of this host.

    Args:
        host: its class.
        marks: the settings.
        work_directories: the labels under which the disk sensor reports, such as `models`.
        gpu: whether the host has a GPU whose sensors we read.
        link: whether the host knows if its link is metered.
    """
    gates = [_memory(host, marks), _disk(marks, work_directories), _lag(marks)]
    gates += _of_equipment(marks, gpu=gpu, link=link)
    if host.is_phone:
        gates += [_phone_thermal(marks), _phone_power(marks), _phone_processes(marks)]
    elif host is not HostClass.CONTAINER:
        gates.append(_thermal(host, marks))
    if host in {HostClass.MAC_LAPTOP, HostClass.LINUX_LAPTOP}:
        gates.append(_laptop_power(marks))
    if host in {HostClass.MAC_DESKTOP, HostClass.LINUX_SERVER}:
        gates.append(_ups(marks))
    if host is HostClass.MAC_LAPTOP:
        gates.append(_lid(marks))
    if marks.user.policy == "yield":
        gates.append(_user(marks))
    return tuple(gates)


def _of_equipment(marks: Marks, *, gpu: bool, link: bool) -> list[GateSpec]:
    gates = [_gpu(marks)] if gpu else []
    if link and not marks.network.metered_ok:
        gates.append(_metered(marks))
    return gates


def _thermal(host: HostClass, marks: Marks) -> GateSpec:
    if host.is_mac:
        rules = _mac_heat(marks)
        vital: tuple[str, ...] = ("thermal.pressure_level", "thermal.speed_limit", "thermal.canary")
    elif host is HostClass.PI:
        rules, vital = _pi_heat(marks), ("thermal.cpu",)
    else:
        rules, vital = _linux_heat(host, marks), ("thermal.cpu_margin", "thermal.cpu", "thermal.canary")
    # A server without a heat sensor is looked after by somebody; a laptop lies on a blanket.
    lenient = host in {HostClass.LINUX_SERVER, HostClass.PI}
    return GateSpec(
        "thermal", rules, (vital,), marks.thermal.open_dwell_seconds,
        unknown_level=Level.OPEN if lenient else HOLD, until="cool",
    )  # fmt: skip


def _linux_heat(host: HostClass, marks: Marks) -> tuple[Rule, ...]:
    heat = marks.thermal
    if host is HostClass.LINUX_SERVER:
        celsius = (heat.server_hold_celsius, heat.server_suspend_celsius, heat.server_drain_celsius)
        cool = heat.server_open_celsius
    else:
        celsius = (heat.hold_celsius, heat.suspend_celsius, heat.drain_celsius)
        cool = heat.open_celsius
    margins = (heat.hold_margin_celsius, heat.suspend_margin_celsius, heat.drain_margin_celsius)
    return (
        Rule("thermal.cpu_margin", Worse.LOW, _three(marks, margins, "Margin"), heat.open_margin_celsius),
        Rule("thermal.cpu", Worse.HIGH, _three(marks, celsius, "Temperature"), cool),
        Rule(
            "thermal.throttle_rate", Worse.HIGH, (Rung(HOLD, 0, heat.close_after_seconds, "Throttling"),), 0
        ),
        _canary(marks),
    )


def _three(marks: Marks, values: tuple[float, float, float], what: str) -> tuple[Rung, ...]:
    heat = marks.thermal
    word = "Below" if what == "Margin" else "Above"
    waits = (heat.close_after_seconds, heat.close_after_seconds, heat.drain_after_seconds)
    return tuple(
        Rung(level, value, wait, f"{what}{word}{value:.0f}C")
        for level, value, wait in zip((HOLD, SUSPEND, DRAIN), values, waits, strict=True)
    )


def _mac_heat(marks: Marks) -> tuple[Rule, ...]:
    heat = marks.thermal
    wait = heat.mac_hold_after_seconds
    return (
        Rule("thermal.pressure_level", Worse.HIGH, (
            Rung(HOLD, heat.mac_hold_level, wait, "ThermalPressureModerate"),
            Rung(SUSPEND, heat.mac_suspend_level, heat.close_after_seconds, "ThermalPressureHeavy"),
            Rung(DRAIN, heat.mac_drain_level, 0, "ThermalPressureTrapping"),
        ), 0),
        Rule("thermal.speed_limit", Worse.LOW, (
            Rung(HOLD, heat.mac_hold_speed_limit_percent, heat.close_after_seconds,
                 f"SpeedLimitBelow{heat.mac_hold_speed_limit_percent:.0f}"),
            Rung(SUSPEND, heat.mac_suspend_speed_limit_percent, heat.close_after_seconds,
                 f"SpeedLimitBelow{heat.mac_suspend_speed_limit_percent:.0f}"),
        ), heat.mac_hold_speed_limit_percent),
        _canary(marks),
    )  # fmt: skip


def _canary(marks: Marks) -> Rule:
    """Our own work as a thermometer, for hosts whose sensors stay green while the clocks fall."""
    heat = marks.thermal
    rung = Rung(SUSPEND, heat.canary_suspend_percent, heat.close_after_seconds, "ThroughputFell")
    return Rule("thermal.canary", Worse.LOW, (rung,), heat.canary_suspend_percent)


def _pi_heat(marks: Marks) -> tuple[Rule, ...]:
    pi, wait = marks.pi, marks.thermal.close_after_seconds
    return (
        Rule("thermal.cpu", Worse.HIGH, (
            Rung(HOLD, pi.hold_celsius, wait, f"TemperatureAbove{pi.hold_celsius:.0f}C"),
            Rung(SUSPEND, pi.suspend_celsius, wait, f"TemperatureAbove{pi.suspend_celsius:.0f}C"),
            Rung(DRAIN, pi.drain_celsius, marks.thermal.drain_after_seconds,
                 f"TemperatureAbove{pi.drain_celsius:.0f}C"),
        ), pi.open_celsius),
        Rule("pi.throttled_now", Worse.HIGH, (Rung(HOLD, 0, 0, "Throttling"),), 0),
        Rule("pi.under_voltage_now", Worse.HIGH, (
            Rung(HOLD, 0, pi.under_voltage_after_seconds, "UnderVoltage"),), 0),
    )  # fmt: skip


def _phone_thermal(marks: Marks) -> GateSpec:
    phone = marks.phone
    celsius = (phone.hold_battery_celsius, phone.suspend_battery_celsius,
               phone.drain_battery_celsius, phone.kill_battery_celsius)  # fmt: skip
    rungs = tuple(
        Rung(level, value, 0, f"BatteryAbove{value:.0f}C")
        for level, value in zip((HOLD, SUSPEND, DRAIN, KILL), celsius, strict=True)
    )
    return GateSpec(
        "thermal",
        (
            Rule("battery.temperature", Worse.HIGH, rungs, phone.open_battery_celsius),
            Rule("battery.overheat", Worse.HIGH, (Rung(DRAIN, 0, 0, "BatteryOverheat"),), 0),
        ),
        (("battery.temperature",),),
        phone.thermal_dwell_seconds,
        unknown_after_seconds=phone.thermal_unknown_after_seconds,
        until="cool",
    )


def _phone_power(marks: Marks) -> GateSpec:
    phone = marks.phone
    charge = (phone.hold_charge_percent, phone.suspend_charge_percent,
              phone.drain_charge_percent, phone.kill_charge_percent)  # fmt: skip
    rungs = tuple(
        Rung(level, value, 0, f"ChargeBelow{value:.0f}")
        for level, value in zip((HOLD, SUSPEND, DRAIN, KILL), charge, strict=True)
    )
    unplugged = (
        Rung(HOLD, 0, 0, "Unplugged"),
        Rung(SUSPEND, 0, phone.suspend_unplugged_after_seconds, "UnpluggedGrace"),
    )
    return GateSpec(
        "power",
        (
            Rule("power.on_battery", Worse.HIGH, unplugged, 0),
            Rule("power.charge", Worse.LOW, rungs, phone.open_charge_percent),
        ),
        (("power.on_battery",), ("power.charge",)),
        marks.power.open_dwell_seconds,
        until="plugged-in",
    )


def _laptop_power(marks: Marks) -> GateSpec:
    power = marks.power
    charge = Rule("power.charge_on_battery", Worse.LOW, (
        Rung(DRAIN, power.drain_charge_percent, 0, f"ChargeBelow{power.drain_charge_percent:.0f}"),
        Rung(KILL, power.kill_charge_percent, 0, f"ChargeBelow{power.kill_charge_percent:.0f}"),
    ), power.open_charge_percent)  # fmt: skip
    unplugged = Rule("power.on_battery", Worse.HIGH, (
        Rung(HOLD, 0, power.hold_on_battery_after_seconds, "OnBattery"),
        Rung(SUSPEND, 0, power.suspend_on_battery_after_seconds, "UnpluggedGrace"),
    ), 0)  # fmt: skip
    rules = (charge,) if power.battery_ok else (unplugged, charge)
    return GateSpec("power", rules, (("power.on_battery",),), power.open_dwell_seconds, until="plugged-in")


def _ups(marks: Marks) -> GateSpec:
    """A host without a battery of its own: only a UPS that runs dry can take its power away."""
    rule = Rule("power.ups_on_battery", Worse.HIGH, (Rung(DRAIN, 0, 0, "UpsOnBattery"),), 0)
    return GateSpec("power", (rule,), (), marks.power.open_dwell_seconds, until="plugged-in")


def _lid(marks: Marks) -> GateSpec:
    rule = Rule("sleep.lid_closed", Worse.HIGH, (Rung(HOLD, 0, 0, "LidClosed"),), 0)
    return GateSpec("sleep", (rule,), (), marks.awake_seconds, until="lid-open")


def _memory(host: HostClass, marks: Marks) -> GateSpec:
    if host.is_mac:
        return _mac_memory(marks)
    memory, phone = marks.memory, marks.phone
    if host.is_phone:
        marked = [(HOLD, phone.hold_available_memory_percent), (DRAIN, phone.drain_available_memory_percent),
                  (KILL, phone.kill_available_memory_percent)]  # fmt: skip
        good, dwell = phone.open_available_memory_percent, phone.memory_dwell_seconds
    else:
        marked = [(HOLD, memory.hold_available_percent), (KILL, memory.kill_available_percent)]
        good, dwell = memory.open_available_percent, memory.open_dwell_seconds
    rungs = tuple(Rung(level, percent, 0, f"AvailBelow{percent:.0f}") for level, percent in marked)
    stall = Rule("memory.stall", Worse.HIGH, (
        Rung(HOLD, memory.hold_stall_percent, memory.stall_after_seconds, "PSIFullHigh"),
        Rung(DRAIN, memory.drain_stall_percent, 2 * memory.stall_after_seconds, "PSIFullHigh"),
        Rung(KILL, memory.kill_stall_percent, memory.stall_after_seconds, "PSIFullHigh"),
    ), memory.open_stall_percent)  # fmt: skip
    available = Rule("memory.available_percent", Worse.LOW, rungs, good)
    return GateSpec(
        "memory", (available, stall), (("memory.available_percent",),), dwell, until="memory-free"
    )


def _mac_memory(marks: Marks) -> GateSpec:
    memory, wait = marks.memory, marks.memory.stall_after_seconds
    return GateSpec(
        "memory",
        (
            Rule("memory.pressure_level", Worse.HIGH, (
                Rung(HOLD, memory.mac_hold_level, 0, "MemoryPressureWarn"),
                Rung(DRAIN, memory.mac_drain_level, 0, "MemoryPressureCritical"),
            ), memory.mac_hold_level),
            Rule("memory.swap_percent", Worse.HIGH, (
                Rung(HOLD, memory.mac_hold_swap_percent, 0, "SwapOfRAMHigh"),
                Rung(KILL, memory.mac_kill_swap_percent, 0, "SwapNearlyFull"),
            ), memory.mac_hold_swap_percent),
            Rule("memory.swap_percent_swapping", Worse.HIGH, (
                Rung(DRAIN, memory.mac_drain_swap_percent, wait, "SwapNearlyFull"),
            ), memory.mac_hold_swap_percent),
            Rule("memory.compressor_percent_swapping", Worse.HIGH, (
                Rung(HOLD, memory.mac_hold_compressor_percent, wait, "CompressorHigh"),
            ), memory.mac_hold_compressor_percent),
        ),
        (("memory.pressure_level",), ("memory.swap_percent",)),
        memory.mac_open_dwell_seconds,
        until="memory-free",
    )  # fmt: skip


def _disk(marks: Marks, work_directories: Sequence[str]) -> GateSpec:
    disk = marks.disk
    rules: list[Rule] = []
    for label in work_directories:
        name = f"disk.{label}"
        reserve = Rule(
            f"{name}.above_reserve",
            Worse.LOW,
            (Rung(HOLD, 0, 0, "FreeBelowReserve"),),
            0,
            f"{name}.above_exit",
        )
        third = Rule(f"{name}.above_third", Worse.LOW, (Rung(DRAIN, 0, 0, "FreeBelowThird"),), 0)
        free = Rule(
            f"{name}.free",
            Worse.LOW,
            (Rung(KILL, disk.kill_free_bytes, 0, "DiskFull"),),
            disk.kill_free_bytes,
        )
        inodes = Rule(f"{name}.inodes", Worse.LOW, (
            Rung(HOLD, disk.hold_inodes_percent, 0, "InodesLow"),), disk.open_inodes_percent)  # fmt: skip
        stuck = Rule(f"{name}.metadata_full", Worse.HIGH, (Rung(HOLD, 0, 0, "MetadataFull"),), 0)
        rules += [reserve, third, free, inodes, stuck]
    vital = tuple((f"disk.{label}.above_reserve",) for label in work_directories)
    return GateSpec("disk", tuple(rules), vital, disk.open_dwell_seconds, until="space-free")


def _gpu(marks: Marks) -> GateSpec:
    gpu, wait = marks.gpu, marks.gpu.close_after_seconds
    heat = Rule("gpu.temperature", Worse.HIGH, (
        Rung(HOLD, gpu.hold_celsius, wait, f"GpuAbove{gpu.hold_celsius:.0f}C"),
        Rung(SUSPEND, gpu.suspend_celsius, wait, f"GpuAbove{gpu.suspend_celsius:.0f}C"),
        Rung(DRAIN, gpu.drain_celsius, wait, f"GpuAbove{gpu.drain_celsius:.0f}C"),
    ), gpu.open_celsius)  # fmt: skip
    slowdown = Rule("gpu.slowdown", Worse.HIGH, (Rung(HOLD, 0, wait, "GpuSlowdown"),), 0)
    failed = Rule("gpu.failed", Worse.HIGH, (Rung(HOLD, 0, 0, "GpuFailed"),), 0)
    return GateSpec(
        "gpu", (heat, slowdown, failed), (("gpu.temperature", "gpu.failed"),), gpu.open_dwell_seconds,
        unknown_level=HOLD, until="cool", scope="gpu",
    )  # fmt: skip


def _metered(marks: Marks) -> GateSpec:
    """Holds no work back, which moves little: only the updater asks before it fetches a release."""
    rule = Rule("network.metered", Worse.HIGH, (Rung(HOLD, 0, 0, "MeteredLink"),), 0)
    return GateSpec(
        "metered", (rule,), (("network.metered",),), marks.network.open_dwell_seconds,
        unknown_level=Level.OPEN, until="unmetered", scope="fetch",
    )  # fmt: skip


def _user(marks: Marks) -> GateSpec:
    user = marks.user
    rule = Rule("user.idle", Worse.LOW, (
        Rung(SUSPEND, user.active_idle_seconds, 0, "UserActive"),), user.open_idle_seconds)  # fmt: skip
    return GateSpec("user", (rule,), (("user.idle",),), 0, until="user-idle")


def _phone_processes(marks: Marks) -> GateSpec:
    phone = marks.phone
    rule = Rule("own.processes", Worse.HIGH, (
        Rung(HOLD, phone.hold_processes, 0, "ProcessBudget"),), phone.open_processes)  # fmt: skip
    return GateSpec("processes", (rule,), (("own.processes",),), 30)


def _lag(marks: Marks) -> GateSpec:
    wait = 2 * marks.tick_working_seconds
    rule = Rule("own.lag", Worse.HIGH, (
        Rung(HOLD, marks.hold_lag_seconds, wait, "DozeLag"),), marks.open_lag_seconds)  # fmt: skip
    return GateSpec("lag", (rule,), (), marks.lag_dwell_seconds)

"""What Macs print, lies included; each fixture is the text of a public bug report."""

from __future__ import annotations

import plistlib

import pytest

from journeyman.adapters.sensors.access import Text
from journeyman.adapters.sensors.mac_battery import MacBattery, signed
from journeyman.adapters.sensors.mac_memory import MacMemory
from journeyman.adapters.sensors.mac_purgeable import MacPurgeable
from journeyman.adapters.sensors.mac_sleep import MacSleep
from journeyman.adapters.sensors.mac_thermal import MacThermal
from journeyman.adapters.sensors.user_activity import MacUser
from journeyman.model.readings import Quality
from tests.support.host_tree import Programs, Ticker, names_of, quality_of, value_of

ROW = " -InternalBattery-0 (id=4653155)\t"
NOTES = (
    "Note: No thermal warning level has been recorded\n"
    "Note: No performance warning level has been recorded\n"
    "Note: No CPU power status has been recorded\n"
)
LEVEL = "notifyutil -g com.apple.system.thermalpressurelevel"
MIB = 1 << 20
GIB = 1 << 30


def battery(source: str, row: str, details: dict[str, object] | None = None) -> MacBattery:
    printed: dict[str, str | Text] = {"pmset -g batt": f"Now drawing from '{source}'\n{row}\n"}
    if details is not None:
        printed["ioreg -r -n AppleSmartBattery -a"] = plistlib.dumps([details]).decode()
    return MacBattery(Programs(printed))


def test_ac_attached_not_charging_is_on_the_plug() -> None:
    """oh-my-posh#2139: the semicolon in `AC attached; not charging` shifts no column."""
    found = battery("AC Power", f"{ROW}80%; AC attached; not charging present: true").read()
    assert value_of(found, "power.on_battery") == 0
    assert value_of(found, "power.charge") == 80


@pytest.mark.parametrize(
    "row",
    [
        "88%; discharging; 4:31 remaining present: true",
        "90%; discharging; (no estimate) present: true",
        "12%; discharging; 0:20 remaining present: true\n\tBattery Warning: Early",
    ],
)
def test_discharging_rows_of_every_shape(row: str) -> None:
    """With an estimate, without one, and with a warning below, the first line says where power comes from."""
    assert value_of(battery("Battery Power", ROW + row).read(), "power.on_battery") == 1


def test_old_releases_print_no_id() -> None:
    """The id in parentheses is missing on old releases of macOS."""
    found = battery("Battery Power", " -InternalBattery-0\t55%; discharging; 2:00 remaining").read()
    assert value_of(found, "power.charge") == 55


def test_a_desktop_prints_only_the_first_line() -> None:
    """No battery is not applicable; it is neither full nor empty."""
    found = battery("AC Power", "").read()
    assert quality_of(found, "power.on_battery") is Quality.UNSUPPORTED
    assert "power.charge" not in names_of(found)


def test_a_ups_is_no_internal_battery() -> None:
    """A desktop behind a UPS that gives power reports the UPS."""
    found = battery("UPS Power", " -Back-UPS ES 700 (id=1)\t95%; discharging; 0:30 remaining").read()
    assert value_of(found, "power.ups_on_battery") == 1
    assert quality_of(found, "power.on_battery") is Quality.UNSUPPORTED


@pytest.mark.parametrize(("milliamperes", "on_battery"), [(-60, 0), (-2400, 1)])
def test_a_charge_limiter_with_the_cable_in_counts_only_a_real_drain(
    milliamperes: int, on_battery: int
) -> None:
    """MacWake#13, batt#74: with the cable in, "Battery Power" at a trickle is a limiter, not a lost plug."""
    raw = milliamperes + (1 << 64)
    found = battery(
        "Battery Power", f"{ROW}80%; discharging; (no estimate)", {"ExternalConnected": True, "Amperage": raw}
    ).read()
    assert value_of(found, "power.on_battery") == on_battery


def test_ioreg_prints_signed_currents_unsigned() -> None:
    """A value above 2^63 is a negative current."""
    assert signed((1 << 64) - 512) == -512
    assert signed(1200) == 1200


def test_the_battery_of_a_mac_is_measured_in_hundredths() -> None:
    """3055 is 30.55 degrees; an empty ioreg leaves the signal out instead of making up zero."""
    assert (
        value_of(
            battery("AC Power", f"{ROW}80%; charged;", {"Temperature": 3055}).read(), "battery.temperature"
        )
        == 30.55
    )
    assert "battery.temperature" not in names_of(battery("AC Power", f"{ROW}80%; charged;").read())


def thermal(level: str | Text, therm: str) -> MacThermal:
    return MacThermal(Programs({LEVEL: level, "pmset -g therm": therm}))


@pytest.mark.parametrize("report", ["exelban/stats#749", "xbar-plugins#2189", "MenuMeters#263", "Hot#80"])
def test_notes_of_pmset_mean_unsupported(report: str) -> None:
    """Three notes for ever: no 0 % speed limit, no sum of empty strings, no "(null)", and not cool."""
    assert quality_of(thermal("", NOTES).read(), "thermal.speed_limit") is Quality.UNSUPPORTED


def test_intel_prints_a_speed_limit() -> None:
    """Tabs, any order, below a dated line."""
    text = (
        "2026-01-01 10:00:00 +0100 CPU Power notify\n\tCPU_Scheduler_Limit \t= 40\n\tCPU_Speed_Limit \t= 28\n"
    )
    assert value_of(thermal("", text).read(), "thermal.speed_limit") == 28


def test_the_thermal_pressure_comes_from_a_fresh_process_each_time() -> None:
    """Hot#73: a value inside a long-lived process sticks; so each read runs the program anew."""
    programs = Programs({LEVEL: "com.apple.system.thermalpressurelevel 0\n"})
    sensor = MacThermal(programs)
    assert value_of(sensor.read(), "thermal.pressure_level") == 0
    programs.printed[LEVEL] = "com.apple.system.thermalpressurelevel 2\n"
    assert value_of(sensor.read(), "thermal.pressure_level") == 2


def test_a_thermal_program_that_hangs_is_a_timeout_and_no_level() -> None:
    """Nobody knows is not nominal."""
    found = thermal(Text(None, Quality.TIMEOUT, "slow"), NOTES).read()
    assert quality_of(found, "thermal.pressure_level") is Quality.TIMEOUT


VM_STAT = """Mach Virtual Memory Statistics: (page size of {page} bytes)
Pages free:                                {free}.
Pages active:                             400000.
Pages inactive:                           {inactive}.
Pages speculative:                         20000.
Pages purgeable:                           10000.
Pages occupied by compressor:             {compressor}.
Swapins:                                  {swapins}.
Swapouts:                                      0.
"""


def mac(
    *, level: str = "1", ram_gib: float = 64, swap: str = "used = 0.00M", free: int = 5248,
    inactive: int = 900000, compressor: int = 50000, swapins: int = 0,
) -> Programs:  # fmt: skip
    return Programs({
        "sysctl -n kern.memorystatus_vm_pressure_level": level + "\n",
        "sysctl -n vm.memory_pressure": "18312\n",
        "sysctl -n hw.memsize": f"{int(ram_gib * GIB)}\n",
        "sysctl -n vm.swapusage": f"total = 2048.00M  {swap}  free = 1035.50M  (encrypted)\n",
        "vm_stat": VM_STAT.format(
            page=16384, free=free, inactive=inactive, compressor=compressor, swapins=swapins
        ),
    })  # fmt: skip


def test_the_pressure_level_is_read_and_the_page_count_is_not() -> None:
    """psutil#2725: vm.memory_pressure counts pages; the level has a name of its own."""
    programs = mac(level="2")
    assert value_of(MacMemory(programs, Ticker()).read(), "memory.pressure_level") == 2
    assert not any("vm.memory_pressure" in call for call in programs.calls)


def test_a_level_that_is_none_is_suspect() -> None:
    """18312 is no level, whoever prints it."""
    assert (
        quality_of(MacMemory(mac(level="18312"), Ticker()).read(), "memory.pressure_level") is Quality.SUSPECT
    )


def test_pages_have_the_size_that_vm_stat_says() -> None:
    """16384 on Apple silicon: compressed bytes are four times what 4096 would give."""
    found = MacMemory(mac(compressor=1000), Ticker()).read()
    assert value_of(found, "memory.compressed") == 1000 * 16384


def test_few_free_pages_are_not_little_memory() -> None:
    """sutando#1560, aidevops#474: 82 MB "unused" with gigabytes inactive is a healthy Mac."""
    available = value_of(MacMemory(mac(free=5248), Ticker()).read(), "memory.available")
    assert available is not None
    assert available > 13 * GIB


def test_swap_ins_are_a_rate_and_unknown_before_the_second_look() -> None:
    """continuum#3877: pages that come back in are what hurts; one look knows no rate."""
    programs, clock = mac(swapins=100), Ticker()
    sensor = MacMemory(programs, clock)
    assert quality_of(sensor.read(), "memory.swap_in_rate") is Quality.UNSUPPORTED
    clock.now += 10
    programs.printed["vm_stat"] = VM_STAT.format(page=16384, free=1, inactive=1, compressor=1, swapins=5100)
    assert value_of(sensor.read(), "memory.swap_in_rate") == 500


def test_swap_in_use_is_read_with_its_unit() -> None:
    """`used = 40.00G` is no 40 MB; used of total is never looked at, as the total grows on demand."""
    assert value_of(MacMemory(mac(swap="used = 40.00G"), Ticker()).read(), "memory.swap_used") == 40 * GIB
    assert (
        value_of(MacMemory(mac(swap="used = 1012.50M"), Ticker()).read(), "memory.swap_used") == 1012.5 * MIB
    )


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ('"AppleClamshellState" = Yes\n"AppleClamshellCausesSleep" = Yes', 1),
        ('"AppleClamshellState" = Yes\n"AppleClamshellCausesSleep" = No', 0),
        ('"AppleClamshellState" = Yes', 1),
        ('"AppleClamshellState" = No', 0),
    ],
)
def test_a_closed_lid_is_a_risk_unless_an_external_display_keeps_it_awake(text: str, closed: int) -> None:
    """orca#20194: caffeinate does not stop a lid from putting a Mac to sleep."""
    assert value_of(MacSleep(Programs({"ioreg": text})).read(), "sleep.lid_closed") == closed


def test_a_headless_mac_has_no_idle_time() -> None:
    """No HID is unknown, not a user who left for ever."""
    assert (
        quality_of(MacUser(Programs({"ioreg": "+-o IOHIDSystem"})).read(), "user.idle") is Quality.UNSUPPORTED
    )
    assert value_of(MacUser(Programs({"ioreg": '"HIDIdleTime" = 4500000000'})).read(), "user.idle") == 4.5


def test_purgeable_space_is_a_second_number() -> None:
    """pymobiledevice3#1769, fleet#30856: both numbers are reported, neither in place of the other."""
    found = MacPurgeable({"state": "/x"}, lambda _: 90 * GIB).read()
    assert value_of(found, "disk.state.important_usage") == 90 * GIB
    assert names_of(found) == {"disk.state.important_usage"}


def test_purgeable_space_is_unsupported_where_there_is_no_core_foundation() -> None:
    """On any other system the framework cannot be loaded."""
    assert MacPurgeable({"state": "/"}).read()[0].quality in {Quality.UNSUPPORTED, Quality.OK}

"""Files of Linux hosts as bug reports show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journeyman.adapters.sensors.btrfs import Btrfs
from journeyman.adapters.sensors.cgroup import ControlGroup
from journeyman.adapters.sensors.cpu_throttle import CpuThrottle
from journeyman.adapters.sensors.disk_space import DiskSpace
from journeyman.adapters.sensors.hwmon import Hwmon
from journeyman.adapters.sensors.meminfo import Meminfo
from journeyman.adapters.sensors.power_supply import PowerSupply
from journeyman.adapters.sensors.psi import PressureStall
from journeyman.adapters.sensors.thermal_zones import ThermalZones
from journeyman.adapters.sensors.vcgencmd import Vcgencmd
from journeyman.model.readings import Quality
from tests.support.host_tree import Programs, Ticker, host_files, names_of, quality_of, value_of

GIB = 1 << 30


def zones(
    root: Path, files: dict[str, str], *, busy: bool = False, clock: Ticker | None = None
) -> ThermalZones:
    laid = {f"sys/class/thermal/{name}": text for name, text in files.items()}
    return ThermalZones(host_files(root, laid), clock or Ticker(), lambda: busy)


def test_trips_are_found_by_their_type(tmp_path: Path) -> None:
    """psutil#2439: the critical trip is the one that says so, divided by 1000 once."""
    found = zones(tmp_path, {
        "thermal_zone0/type": "x86_pkg_temp", "thermal_zone0/temp": "60000",
        "thermal_zone0/trip_point_0_type": "passive", "thermal_zone0/trip_point_0_temp": "80000",
        "thermal_zone0/trip_point_1_type": "hot", "thermal_zone0/trip_point_1_temp": "95000",
        "thermal_zone0/trip_point_2_type": "critical", "thermal_zone0/trip_point_2_temp": "105000",
    }).read()  # fmt: skip
    assert value_of(found, "thermal.cpu_margin") == 45


@pytest.mark.parametrize("trip", ["-274000", "-1", "0", "65261850"])
def test_an_implausible_trip_is_no_trip(tmp_path: Path, trip: str) -> None:
    """thermald#550: -274000 throttled a machine 17.8 times; without a trip the temperature counts."""
    found = zones(tmp_path, {
        "thermal_zone0/type": "TCPU", "thermal_zone0/temp": "51000",
        "thermal_zone0/trip_point_0_type": "critical", "thermal_zone0/trip_point_0_temp": trip,
    }).read()  # fmt: skip
    assert names_of(found) == {"thermal.cpu"}
    assert value_of(found, "thermal.cpu") == 51


@pytest.mark.parametrize("raw", ["-650788984", "-273150", "-274000", "0", "150000", "65261850"])
def test_junk_temperatures_are_suspect_and_have_no_value(tmp_path: Path, raw: str) -> None:
    """raspberrypi/firmware#133: neither an alarm nor cool."""
    (found,) = zones(tmp_path, {"thermal_zone0/type": "cpu-thermal", "thermal_zone0/temp": raw}).read()
    assert (found.quality, found.value) == (Quality.SUSPECT, None)


def test_one_bad_zone_costs_one_reading(tmp_path: Path) -> None:
    """node_exporter#2906, #3767: one zone of many that cannot be read does not hide the others."""
    files = {f"thermal_zone{n}/type": "x86_pkg_temp" for n in range(52)}
    files |= {f"thermal_zone{n}/temp": "50000" for n in range(52) if n != 7}
    sensor = zones(tmp_path, files)
    (tmp_path / "sys/class/thermal/thermal_zone7/temp").mkdir()
    found = sensor.read()
    assert [one.quality for one in found].count(Quality.OK) == 51
    assert [one.source for one in found if one.quality is Quality.ERROR] == ["thermal_zone7/x86_pkg_temp"]


def test_the_wireless_card_is_not_the_cpu(tmp_path: Path) -> None:
    """A hot iwlwifi or pch says nothing about the CPU."""
    files = {"thermal_zone0/type": "iwlwifi_1", "thermal_zone0/temp": "99000",
             "thermal_zone1/type": "pch_cannonlake", "thermal_zone1/temp": "99000"}  # fmt: skip
    assert quality_of(zones(tmp_path, files).read(), "thermal.cpu") is Quality.UNSUPPORTED


def test_a_temperature_that_does_not_move_under_load_is_frozen(tmp_path: Path) -> None:
    """An acpitz at 27.8 for ten minutes of work is no thermometer; an idle host may well stand still."""
    files, clock = {"thermal_zone0/type": "acpitz", "thermal_zone0/temp": "27800"}, Ticker()
    working = zones(tmp_path, files, busy=True, clock=clock)
    idle = zones(tmp_path, files, busy=False, clock=clock)
    for _ in range(121):
        found, idling = working.read(), idle.read()
        clock.now += 5
    assert quality_of(found, "thermal.cpu") is Quality.SUSPECT
    assert value_of(idling, "thermal.cpu") == pytest.approx(27.8)


def hwmon(root: Path, files: dict[str, str]) -> Hwmon:
    return Hwmon(host_files(root, {f"sys/class/hwmon/{name}": text for name, text in files.items()}))


def test_one_unreadable_input_is_dropped_and_named(tmp_path: Path) -> None:
    """psutil#1009, #1245: a file that is no number is one error, and it says which."""
    found = hwmon(tmp_path, {
        "hwmon0/name": "coretemp", "hwmon0/temp1_input": "45000", "hwmon0/temp1_crit": "100000",
        "hwmon0/temp2_input": "N/A", "hwmon1/name": "nvme", "hwmon1/temp1_input": "65261850",
    }).read()  # fmt: skip
    assert value_of(found, "thermal.cpu_margin") == 55
    assert [(one.source, one.quality) for one in found if one.value is None] == [
        ("hwmon0/coretemp/temp2", Quality.ERROR)
    ]


def test_the_real_temperature_of_a_ryzen_is_preferred(tmp_path: Path) -> None:
    """Tctl may carry an offset of 10 to 27 degrees; Tdie and Tccd do not."""
    found = hwmon(tmp_path, {
        "hwmon0/name": "k10temp", "hwmon0/temp1_input": "87000", "hwmon0/temp1_label": "Tctl",
        "hwmon0/temp2_input": "60000", "hwmon0/temp2_label": "Tdie",
    }).read()  # fmt: skip
    assert value_of(found, "thermal.cpu") == 60


def test_throttle_counters_are_a_rate(tmp_path: Path) -> None:
    """A counter that was high already at the start is history; only what rises counts."""
    path = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
    files, clock = host_files(tmp_path, {path: "812"}), Ticker()
    sensor = CpuThrottle(files, clock)
    assert "thermal.throttle_rate" not in names_of(sensor.read())
    clock.now += 5
    assert value_of(sensor.read(), "thermal.throttle_rate") == 0
    clock.now += 5
    (tmp_path / path).write_text("822")
    assert value_of(sensor.read(), "thermal.throttle_rate") == 2


def power(root: Path, files: dict[str, str]) -> PowerSupply:
    return PowerSupply(
        host_files(root, {f"sys/class/power_supply/{name}": text for name, text in files.items()})
    )


BATTERY = {"BAT0/type": "Battery", "BAT0/status": "Discharging", "BAT0/capacity": "81",
           "BAT0/energy_full": "45070000", "BAT0/power_now": "5002000"}  # fmt: skip


def test_a_laptop_without_its_plug_is_on_battery(tmp_path: Path) -> None:
    """node_exporter's fixture: AC offline, BAT0 discharging at 5 W."""
    found = power(tmp_path, {"AC/type": "Mains", "AC/online": "0", **BATTERY}).read()
    assert (value_of(found, "power.on_battery"), value_of(found, "power.charge")) == (1, 81)


def test_discharging_at_no_current_is_a_charge_limit(tmp_path: Path) -> None:
    """auto-cpufreq#573, #83: status Discharging with current_now 0 is a battery that rests."""
    files = {
        "BAT0/type": "Battery",
        "BAT0/status": "Discharging",
        "BAT0/capacity": "80",
        "BAT0/current_now": "0",
    }
    assert value_of(power(tmp_path, files).read(), "power.on_battery") == 0


@pytest.mark.parametrize("status", ["pending-charge", "pending-discharge", "Not charging", "Unknown", "Full"])
def test_states_of_a_held_charge_are_ac(tmp_path: Path, status: str) -> None:
    """tmux-battery#117: a state that is not Discharging takes nothing from the battery."""
    files = {
        "AC/type": "Mains",
        "AC/online": "1",
        "BAT0/type": "Battery",
        "BAT0/status": status,
        "BAT0/capacity": "80",
    }
    assert value_of(power(tmp_path, files).read(), "power.on_battery") == 0


def test_a_mouse_is_no_laptop(tmp_path: Path) -> None:
    """TLP#768: a desktop whose only battery is in its mouse has none."""
    files = {"hidpp_battery_0/type": "Battery", "hidpp_battery_0/scope": "Device",
             "hidpp_battery_0/status": "Discharging", "hidpp_battery_0/capacity": "40"}  # fmt: skip
    assert quality_of(power(tmp_path, files).read(), "power.on_battery") is Quality.UNSUPPORTED


def test_the_usb_c_port_of_a_graphics_card_is_no_power_supply(tmp_path: Path) -> None:
    """systemd#21988: a desktop with an offline UCSI port and no battery is not on battery."""
    files = {"ucsi-source-psy-1/type": "USB", "ucsi-source-psy-1/online": "0"}
    assert quality_of(power(tmp_path, files).read(), "power.on_battery") is Quality.UNSUPPORTED


def test_batteries_are_found_by_type_and_weighed_by_size(tmp_path: Path) -> None:
    """psutil#1238: two batteries of a ThinkPad under odd names are one charge."""
    files = {"AC/type": "Mains", "AC/online": "1",
             "BATC/type": "Battery", "BATC/status": "Full", "BATC/capacity": "100",
             "BATC/energy_full": "20000000",
             "CMB1/type": "Battery", "CMB1/status": "Charging", "CMB1/capacity": "40",
             "CMB1/energy_full": "60000000"}  # fmt: skip
    assert value_of(power(tmp_path, files).read(), "power.charge") == 55


def test_a_half_filled_battery_is_an_error_and_no_number(tmp_path: Path) -> None:
    """psutil#1919, #2605: no status and an odd capacity give no reading, and no exception."""
    found = power(tmp_path, {"BAT1/type": "Battery", "BAT1/capacity": "250"}).read()
    assert quality_of(found, "power.on_battery") is Quality.ERROR
    assert quality_of(found, "power.charge") is Quality.ERROR


MEMINFO = "MemTotal:       16384000 kB\nMemFree:          512000 kB\nMemAvailable:    4096000 kB\n"


def test_a_line_without_a_blank_is_read(tmp_path: Path) -> None:
    """psutil#2809: `ShadowCallStack:10373888 kB` raised a ValueError."""
    found = Meminfo(host_files(tmp_path, {"proc/meminfo": MEMINFO + "ShadowCallStack:10373888 kB\n"})).read()
    assert value_of(found, "memory.available") == 4096000 * 1024


def test_the_zfs_cache_above_its_minimum_is_available(tmp_path: Path) -> None:
    """openzfs/zfs#10255, earlyoom#191: an ARC of 60 % of the memory is given back at need."""
    arc = "13 1 0x01 123 33456 7 9\nname type data\nsize    4    9663676416\nc_min   4    536870912\n"
    files = host_files(tmp_path, {"proc/meminfo": MEMINFO, "proc/spl/kstat/zfs/arcstats": arc})
    assert value_of(Meminfo(files).read(), "memory.available") == 4096000 * 1024 + 9663676416 - 536870912


def test_mem_available_zero_is_not_believed(tmp_path: Path) -> None:
    """psutil#1915: where MemAvailable says 0, what is free is the least that there is."""
    text = MEMINFO.replace("4096000", "0")
    assert (
        value_of(Meminfo(host_files(tmp_path, {"proc/meminfo": text})).read(), "memory.available")
        == 512000 * 1024
    )


def test_more_available_than_there_is_is_suspect(tmp_path: Path) -> None:
    """A faked or broken file gives no number."""
    text = MEMINFO.replace("4096000", "99999999")
    assert (
        quality_of(Meminfo(host_files(tmp_path, {"proc/meminfo": text})).read(), "memory.available")
        is Quality.SUSPECT
    )


def test_stall_is_our_own_difference_over_ten_seconds(tmp_path: Path) -> None:
    """Averages lag; 1.5 s of waiting in 10 s are 15 %."""
    path, clock = "proc/pressure/memory", Ticker()
    text = "some avg10=9.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.50 avg60=0.00 avg300=0.00 total={}\n"
    files = host_files(tmp_path, {path: text.format(1_000_000)})
    sensor = PressureStall(files, clock)
    assert value_of(sensor.read(), "memory.stall") == 0.5
    clock.now += 10
    (tmp_path / path).write_text(text.format(2_500_000))
    later = sensor.read()
    assert value_of(later, "memory.stall") == pytest.approx(15)
    assert [one.over_seconds for one in later] == [10]


def test_a_kernel_without_pressure_is_unsupported(tmp_path: Path) -> None:
    """psi=0: no file, no stall, and not "no stall"."""
    assert (
        quality_of(PressureStall(host_files(tmp_path, {}), Ticker()).read(), "memory.stall")
        is Quality.UNSUPPORTED
    )


GROUP = {
    "proc/self/cgroup": "0::/user.slice/job\n",
    "sys/fs/cgroup/user.slice/job/memory.max": f"{8 * GIB}\n",
}


@pytest.mark.parametrize("report", ["kubernetes#43916", "kubernetes#138372", "ray#33741", "ray#35989"])
def test_page_cache_is_not_in_use(tmp_path: Path, report: str) -> None:
    """95 % of the limit, most of it inactive file pages: no healthy task is killed for that."""
    files = host_files(tmp_path, {
        **GROUP,
        "sys/fs/cgroup/user.slice/job/memory.current": str(int(7.6 * GIB)),
        "sys/fs/cgroup/user.slice/job/memory.stat": f"anon {GIB}\ninactive_file {6 * GIB}\n",
    })  # fmt: skip
    available = value_of(ControlGroup(files).read(), "memory.available")
    assert available == pytest.approx(6.4 * GIB, rel=0.01)


def test_more_in_use_than_the_limit_leaves_nothing_and_no_negative(tmp_path: Path) -> None:
    """kubernetes#52336: an allocatable of -9112137624 was offered."""
    files = host_files(tmp_path, {**GROUP, "sys/fs/cgroup/user.slice/job/memory.current": str(17 * GIB)})
    assert value_of(ControlGroup(files).read(), "memory.available") == 0


def test_kills_are_counted_from_our_start(tmp_path: Path) -> None:
    """memory.events keeps counts of lives before ours."""
    path = "sys/fs/cgroup/user.slice/job/memory.events"
    files = host_files(tmp_path, {
        **GROUP,
        "sys/fs/cgroup/user.slice/job/memory.current": "0",
        path: "low 0\noom 3\noom_kill 3\n",
    })  # fmt: skip
    sensor = ControlGroup(files)
    assert value_of(sensor.read(), "memory.oom_kills") == 0
    (tmp_path / path).write_text("low 0\noom 4\noom_kill 4\n")
    assert value_of(sensor.read(), "memory.oom_kills") == 1


def test_the_tightest_group_on_the_way_to_the_root_counts(tmp_path: Path) -> None:
    """A pod's limit binds its containers, also on version 1."""
    files = host_files(tmp_path, {
        "proc/self/cgroup": "4:memory:/pod/box\n",
        "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": str(2 * GIB),
        "sys/fs/cgroup/memory/pod/memory.usage_in_bytes": str(GIB),
        "sys/fs/cgroup/memory/pod/box/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/pod/box/memory.usage_in_bytes": "1",
    })  # fmt: skip
    assert value_of(ControlGroup(files).read(), "memory.available") == GIB


@pytest.mark.parametrize(
    ("raw", "throttled", "under_voltage", "history"),
    [("0x50005", 1, 1, 1), ("0x50000", 0, 0, 1), ("0x0", 0, 0, 0), ("0x1", 0, 1, 0), ("0x8", 1, 0, 0)],
)
def test_the_pi_gates_on_what_is_now(
    tmp_path: Path, raw: str, throttled: int, under_voltage: int, history: int
) -> None:
    """firmware#615, genmon#1052: 0x50000 after a new supply is history; under-voltage is not heat."""
    found = Vcgencmd(host_files(tmp_path, {}), Programs({"vcgencmd": f"throttled={raw}\n"})).read()
    assert value_of(found, "pi.throttled_now") == throttled
    assert value_of(found, "pi.under_voltage_now") == under_voltage
    assert value_of(found, "pi.limited_since_boot") == history


def test_the_pi_file_needs_no_child(tmp_path: Path) -> None:
    """Sysfs has the same number without its 0x."""
    programs = Programs({})
    files = host_files(tmp_path, {"sys/devices/platform/soc/soc:firmware/get_throttled": "50005"})
    assert value_of(Vcgencmd(files, programs).read(), "pi.under_voltage_now") == 1
    assert not programs.calls


def statvfs(*, total: float, free: float, files: int = 1000, free_files: int = 500) -> os.statvfs_result:
    blocks, bavail = int(total // 4096), int(free // 4096)
    # f_bfree is larger: the root's reserve is not ours.
    return os.statvfs_result(
        (4096, 4096, blocks, bavail + 10_000, bavail, files, free_files, free_files, 0, 255)
    )


def test_the_roots_reserve_is_not_free_for_us() -> None:
    """f_bavail counts, f_bfree does not."""
    found = DiskSpace({"state": "/x"}, lambda _: statvfs(total=1e11, free=4096 * 100)).read()
    assert value_of(found, "disk.state.free") == 4096 * 100


def test_a_file_system_without_inodes_has_no_inode_signal() -> None:
    """kubernetes#21546: f_files of 0 is btrfs, not "0 free"."""
    found = DiskSpace({"state": "/x"}, lambda _: statvfs(total=1e11, free=1e10, files=0, free_files=0)).read()
    assert quality_of(found, "disk.state.inodes") is Quality.UNSUPPORTED


def test_a_work_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """It is neither unsupported nor full."""
    assert quality_of(DiskSpace({"state": str(tmp_path / "no")}).read(), "disk.state.free") is Quality.ERROR


def test_btrfs_tells_what_statvfs_does_not(tmp_path: Path) -> None:
    """netdata#3095, btrfs-todo#61: all allocated, 62 % of data used, metadata nearly full."""
    fs = "sys/fs/btrfs/6e1c"
    files = host_files(tmp_path, {
        "proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                               "31 22 0:30 / /mnt/my\\040data rw,noatime shared:1 - btrfs /dev/sdb1 rw\n",
        f"{fs}/devices/sdb1/size": str(10 * GIB // 512),
        f"{fs}/allocation/data/disk_total": str(8 * GIB),
        f"{fs}/allocation/metadata/disk_total": str(2 * GIB - 1024),
        f"{fs}/allocation/metadata/total_bytes": str(GIB),
        f"{fs}/allocation/metadata/bytes_used": str(int(0.93 * GIB)),
        f"{fs}/allocation/system/disk_total": "1024",
    })  # fmt: skip
    found = Btrfs(files, {"state": "/mnt/my data/journeyman", "other": "/home"}).read()
    assert value_of(found, "disk.state.unallocated") == 0
    assert value_of(found, "disk.state.metadata_used") == pytest.approx(93)
    assert not any("other" in one.name for one in found)

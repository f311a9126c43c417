"""Every mark of the gates as a setting, with its unit in its name and the source of its default.

`Marks` is made to be embedded in the settings as `gates`; `docs/gates.md` lists what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from journeyman.errors import ConfigError

Celsius = Annotated[float, Field(ge=-20, le=125, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0)]

GB = 1_000_000_000
OURS = "ours"
KUBELET = "kubelet eviction defaults"
BOINC = "BOINC Android defaults"
CONDOR = "HTCondor UWCS policy"
APPLE = "OSThermalNotification.h, pmset"
XNU = "xnu vm_pressure"
PI = "Raspberry Pi firmware documentation"


def mark(default: Any, description: str, source: str = OURS) -> Any:
    """A setting with the source of its default."""
    return Field(default, description=description, json_schema_extra={"source": source})


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class ThermalMarks(_Group):
    """Heat of a computer.  A margin is the critical temperature of the chip minus its temperature."""

    hold_margin_celsius: Celsius = mark(10, "No new work below this margin.")
    suspend_margin_celsius: Celsius = mark(3, "Work stands still below this margin.")
    drain_margin_celsius: Celsius = mark(1, "Work ends below this margin.")
    open_margin_celsius: Celsius = mark(18, "Open again from this margin on.")
    hold_celsius: Celsius = mark(
        88, "No new work above, where the chip does not tell its critical temperature."
    )
    suspend_celsius: Celsius = mark(96, "Work stands still above, where no critical temperature is known.")
    drain_celsius: Celsius = mark(100, "Work ends above, where no critical temperature is known.")
    open_celsius: Celsius = mark(80, "Open again at or below, where no critical temperature is known.")
    server_hold_celsius: Celsius = mark(85, "The same for a server: no new work.")
    server_suspend_celsius: Celsius = mark(95, "The same for a server: work stands still.")
    server_drain_celsius: Celsius = mark(99, "The same for a server: work ends.")
    server_open_celsius: Celsius = mark(77, "The same for a server: open again.")
    close_after_seconds: Seconds = mark(30, "How long a mark must be passed to hold or suspend.")
    drain_after_seconds: Seconds = mark(10, "How long a mark must be passed to drain (three samples).")
    open_dwell_seconds: Seconds = mark(300, "How long all sources must agree to open.", f"{BOINC}, kubelet")
    mac_hold_level: int = mark(0, "Pressure levels of macOS above this hold.", APPLE)
    mac_suspend_level: int = mark(1, "Pressure levels of macOS above this suspend.", APPLE)
    mac_drain_level: int = mark(2, "Pressure levels of macOS above this drain.", APPLE)
    mac_hold_after_seconds: Seconds = mark(60, "How long macOS must report heat to hold.")
    mac_hold_speed_limit_percent: Percent = mark(90, "CPU speed limits below this hold.", APPLE)
    mac_suspend_speed_limit_percent: Percent = mark(60, "CPU speed limits below this suspend.", APPLE)
    canary_suspend_percent: Percent = mark(
        60, "Throughput of our own work, of its first minute, that suspends."
    )


class PiMarks(_Group):
    """Heat and supply of a Raspberry Pi, whose firmware limits itself at 80 to 85 degrees."""

    hold_celsius: Celsius = mark(75, "No new work above.", PI)
    suspend_celsius: Celsius = mark(80, "Work stands still above.", PI)
    drain_celsius: Celsius = mark(84, "Work ends above.", PI)
    open_celsius: Celsius = mark(68, "Open again at or below.")
    under_voltage_after_seconds: Seconds = mark(30, "How long the supply must be too weak to hold.")


class PhoneMarks(_Group):
    """Heat, power, memory and processes of a phone."""

    hold_battery_celsius: Celsius = mark(38, "No new work from this battery temperature on.", f"{BOINC} (40)")
    suspend_battery_celsius: Celsius = mark(41, "Work stands still above.")
    drain_battery_celsius: Celsius = mark(44, "Work ends above.")
    kill_battery_celsius: Celsius = mark(47, "Work ends at once above.")
    open_battery_celsius: Celsius = mark(36, "Open again at or below.")
    thermal_dwell_seconds: Seconds = mark(600, "How long the battery must stay cool to open.")
    thermal_unknown_after_seconds: Seconds = mark(180, "Silence of the only heat sensor that closes.")
    hold_charge_percent: Percent = mark(60, "No new work below, even when plugged in.", f"{BOINC} (90)")
    suspend_charge_percent: Percent = mark(50, "Work stands still below.")
    drain_charge_percent: Percent = mark(30, "Work ends below.")
    kill_charge_percent: Percent = mark(20, "Work ends at once below.")
    open_charge_percent: Percent = mark(70, "Open again from this charge on.")
    suspend_unplugged_after_seconds: Seconds = mark(60, "Time without a plug after which work stands still.")
    hold_available_memory_percent: Percent = mark(20, "No new work below.")
    drain_available_memory_percent: Percent = mark(12, "Work ends below; standing still frees nothing.")
    kill_available_memory_percent: Percent = mark(8, "Work ends at once below.")
    open_available_memory_percent: Percent = mark(25, "Open again from here on.")
    memory_dwell_seconds: Seconds = mark(120, "How long memory must be good to open.")
    hold_processes: int = mark(20, "More processes of ours than this hold.", "Android allows 32 for all apps")
    open_processes: int = mark(16, "Open again at or below; 12 of them are there without work.")


class PowerMarks(_Group):
    """Power of a laptop, and of a desktop with a UPS."""

    battery_ok: bool = mark(default=False, description="Whether work may go on while the battery is used.")
    hold_on_battery_after_seconds: Seconds = mark(15, "Time on battery after which no new work is taken.")
    suspend_on_battery_after_seconds: Seconds = mark(120, "Time on battery after which work stands still.")
    drain_charge_percent: Percent = mark(30, "Work ends below, while on battery.")
    kill_charge_percent: Percent = mark(15, "Work ends at once below, while on battery.")
    open_charge_percent: Percent = mark(35, "Open again from here on, where work on battery is allowed.")
    open_dwell_seconds: Seconds = mark(300, "How long the plug must be in to open.", BOINC)


class MemoryMarks(_Group):
    """Memory of a computer."""

    reserve_bytes: Bytes = mark(700_000_000, "Memory that admission leaves to the host.")
    hold_available_percent: Percent = mark(10, "No new work below.", "earlyoom")
    kill_available_percent: Percent = mark(3, "The youngest retriable work ends below.", "earlyoom (5)")
    open_available_percent: Percent = mark(15, "Open again from here on.")
    hold_stall_percent: Percent = mark(
        5, "Share of time in which all work waits for memory: hold.", "PSI full"
    )
    drain_stall_percent: Percent = mark(
        15, "Share of time in which all work waits for memory: drain.", "PSI full"
    )
    kill_stall_percent: Percent = mark(
        40, "Share of time in which all work waits: kill.", "systemd-oomd (60)"
    )
    open_stall_percent: Percent = mark(1, "Open again at or below.")
    stall_after_seconds: Seconds = mark(10, "How long work must wait that much.")
    open_dwell_seconds: Seconds = mark(60, "How long memory must be good to open.")
    mac_hold_level: int = mark(1, "Memory pressure levels of macOS above this hold.", XNU)
    mac_drain_level: int = mark(2, "Memory pressure levels of macOS above this drain.", XNU)
    mac_hold_swap_percent: Ratio = mark(25, "Swap used, of RAM, above which a Mac takes no new work.")
    mac_drain_swap_percent: Ratio = mark(
        50, "Swap used, of RAM, above which work ends while pages come back in."
    )
    mac_kill_swap_percent: Ratio = mark(100, "Swap used, of RAM, above which work ends at once.")
    mac_hold_compressor_percent: Ratio = mark(30, "Compressed, of RAM, that holds while pages come back in.")
    mac_open_dwell_seconds: Seconds = mark(120, "How long a Mac's memory must be good to open.")


class DiskMarks(_Group):
    """Room for work: a share of the file system, clamped in bytes so that big disks keep no fortune back."""

    reserve_percent: Percent = mark(5, "Share kept free.", "k3s imagefs/nodefs.available")
    reserve_min_bytes: Bytes = mark(5 * GB, "The share is at least this.")
    reserve_max_bytes: Bytes = mark(50 * GB, "The share is at most this.")
    open_extra_percent: Percent = mark(5, "Share on top of the reserve that must be free to open.")
    open_extra_min_bytes: Bytes = mark(3 * GB, "That share is at least this.")
    open_extra_max_bytes: Bytes = mark(25 * GB, "That share is at most this.")
    kill_free_bytes: Bytes = mark(1 * GB, "The largest writer ends at once below.")
    hold_inodes_percent: Percent = mark(5, "No new work below.", KUBELET)
    open_inodes_percent: Percent = mark(8, "Open again from here on.")
    open_dwell_seconds: Seconds = mark(300, "How long there must be room to open.", KUBELET)
    purgeable_need_bytes: Bytes = mark(2 * GB, "Work that needs less may count on what macOS can purge.")
    reclaim_effective_percent: Percent = mark(25, "A clean-up that frees less of its promise is reported.")
    reclaim_settle_seconds: Seconds = mark(60, "How long a clean-up has until free space is looked at again.")


class GpuMarks(_Group):
    """Heat of a GPU; it withdraws the GPU alone."""

    hold_celsius: Celsius = mark(83, "No new work from here on.", "NVIDIA slowdown temperatures")
    suspend_celsius: Celsius = mark(88, "Work stands still above.")
    drain_celsius: Celsius = mark(92, "Work ends above.")
    open_celsius: Celsius = mark(75, "Open again at or below.")
    close_after_seconds: Seconds = mark(15, "How long a mark must be passed.")
    open_dwell_seconds: Seconds = mark(180, "How long it must stay cool to open.")


class UserMarks(_Group):
    """What happens while somebody uses the host."""

    policy: Literal["ignore", "yield"] = mark("ignore", "`yield` stands back while somebody is active.")
    active_idle_seconds: Seconds = mark(60, "Idle for less than this, the user is active.", CONDOR)
    open_idle_seconds: Seconds = mark(300, "Open again once the user has been idle this long.", CONDOR)


class NetworkMarks(_Group):
    """The link to the world."""

    metered_ok: bool = mark(False, "Whether releases are fetched over a metered link.")
    open_dwell_seconds: Seconds = mark(60, "How long the link must be unmetered to open.")


class LadderMarks(_Group):
    """Deadlines for running work."""

    suspend_limit_seconds: Seconds = mark(600, "Work that stood still for this long is ended.", CONDOR)
    grace_seconds: Seconds = mark(30, "Time between SIGTERM and SIGKILL.")
    phone_grace_seconds: Seconds = mark(15, "Time between SIGTERM and SIGKILL on a phone.")
    settle_seconds: Seconds = mark(15, "Time for one step to show before the next job's turn.")


class AdmissionMarks(_Group):
    """What is taken on."""

    reservation_seconds: Seconds = mark(60, "A grant counts in full for this long.")
    reservation_seen_percent: Percent = mark(80, "After that it counts until this share of it is in use.")
    retry_seconds: Seconds = mark(15, "When to ask again where nothing better is known.")


class Marks(_Group):
    """All marks of all gates, and how often the host is read."""

    host_class: str = mark("auto", "Class of the host, such as `linux-laptop`; `auto` finds out.")
    sidecar_file: str = mark(
        "/data/data/com.termux/files/home/.journeyman/sensors.json",
        "In a PRoot guest: the file that the Termux side writes.",
    )
    tick_starting_seconds: Seconds = mark(
        1, "Time between the first two sweeps, at a start and after a sleep."
    )
    tick_working_seconds: Seconds = mark(5, "Time between two sweeps while work runs.")
    tick_idle_seconds: Seconds = mark(15, "Time between two sweeps while nothing runs, or on battery.")
    sleep_gap_seconds: Seconds = mark(30, "A gap of the clocks above this means that the host slept.")
    awake_seconds: Seconds = mark(60, "Unbroken time awake before work is taken after a sleep.")
    hold_lag_seconds: Seconds = mark(2, "A loop this late three times over is held back or overloaded.")
    open_lag_seconds: Seconds = mark(0.5, "Lateness at or below which that is over.")
    lag_dwell_seconds: Seconds = mark(60, "How long it must be over.")
    thermal: ThermalMarks = ThermalMarks()
    pi: PiMarks = PiMarks()
    phone: PhoneMarks = PhoneMarks()
    power: PowerMarks = PowerMarks()
    memory: MemoryMarks = MemoryMarks()
    disk: DiskMarks = DiskMarks()
    gpu: GpuMarks = GpuMarks()
    user: UserMarks = UserMarks()
    network: NetworkMarks = NetworkMarks()
    ladder: LadderMarks = LadderMarks()
    admission: AdmissionMarks = AdmissionMarks()


def marks_from(values: Mapping[str, Any], place: str) -> Marks:
    """The marks of a table; what it leaves out has its default.

    Args:
        values: nested by group, as in TOML.
        place: where they come from, for the error.

    Raises:
        ConfigError: a mark does not exist or has no such value.
    """
    try:
        return Marks.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{place}: {key}: {first['msg']}", "docs/gates.md lists every mark.") from error

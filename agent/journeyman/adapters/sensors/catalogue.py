"""Which sensors a host has: found out once at the start, from files and programs alone."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from journeyman.adapters.sensors.access import HostFiles, Run, Text, run_command
from journeyman.adapters.sensors.amdgpu import AmdGpu
from journeyman.adapters.sensors.btrfs import Btrfs
from journeyman.adapters.sensors.cgroup import ControlGroup
from journeyman.adapters.sensors.clocks import HostClocks
from journeyman.adapters.sensors.cpu_throttle import CpuThrottle
from journeyman.adapters.sensors.disk_space import DiskSpace
from journeyman.adapters.sensors.hwmon import Hwmon
from journeyman.adapters.sensors.load import Load
from journeyman.adapters.sensors.mac_battery import MacBattery
from journeyman.adapters.sensors.mac_link import MacLink
from journeyman.adapters.sensors.mac_memory import MacMemory
from journeyman.adapters.sensors.mac_purgeable import MacPurgeable
from journeyman.adapters.sensors.mac_sleep import MacSleep
from journeyman.adapters.sensors.mac_thermal import MacThermal
from journeyman.adapters.sensors.meminfo import Meminfo
from journeyman.adapters.sensors.metered_link import MeteredLink
from journeyman.adapters.sensors.nvidia import NvidiaSmi
from journeyman.adapters.sensors.power_supply import PowerSupply
from journeyman.adapters.sensors.processes import OwnProcesses
from journeyman.adapters.sensors.proot import FakedFiles, banned_sources
from journeyman.adapters.sensors.psi import PressureStall
from journeyman.adapters.sensors.sidecar import Sidecar
from journeyman.adapters.sensors.termux_battery import TermuxBattery
from journeyman.adapters.sensors.thermal_zones import ThermalZones
from journeyman.adapters.sensors.user_activity import MacUser, TerminalUser
from journeyman.adapters.sensors.vcgencmd import Vcgencmd
from journeyman.adapters.system_clock import SystemClock
from journeyman.core.gates.host_class import HostClass, HostFacts
from journeyman.model.readings import Quality
from journeyman.ports import Sensor

TERMUX_PREFIX = "/data/data/com.termux/"


@dataclass(frozen=True)
class Host:
    """How sensors reach this host; the defaults are the real one.

    Attributes:
        files: its files.
        run: its programs.
        boot: its boot-time clock.
        busy: whether work of ours runs.
        system: `sys.platform`.
        environ: the environment.
        uid: our user.
    """

    files: HostFiles = field(default_factory=HostFiles)
    run: Run = run_command
    boot: Callable[[], float] = field(default_factory=lambda: HostClocks().boot)
    busy: Callable[[], bool] = lambda: False
    system: str = sys.platform
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    uid: int = field(default_factory=os.getuid)


def host_facts(host: Host) -> HostFacts:
    """What the class of the host is found by."""
    # A battery that does not answer at this moment is a battery: a laptop taken for a desktop would run dry.
    source = MacBattery(host.run) if host.system == "darwin" else PowerSupply(host.files)
    battery = any(
        one.name == "power.on_battery" and one.quality is not Quality.UNSUPPORTED for one in source.read()
    )
    if host.system == "darwin":
        return HostFacts(darwin=True, battery=battery)
    banned = banned_sources(host.files, host.boot)
    return HostFacts(
        battery=battery,
        termux=host.environ.get("PREFIX", "").startswith(TERMUX_PREFIX),
        proot=bool(banned),
        pi="Raspberry Pi" in (host.files.text("proc/device-tree/model").value or ""),
        virtual=_is_virtual(host.files),
    )


def sensors_for(
    host: Host, kind: HostClass, directories: Mapping[str, str], *, sidecar_file: str = ""
) -> list[Sensor]:
    """The sensors of a host of that class.

    Args:
        host: how to reach it.
        kind: its class.
        directories: absolute paths of the work directories by label.
        sidecar_file: where the Termux side of a PRoot guest leaves its report.
    """
    common: list[Sensor] = [DiskSpace(directories)]
    if kind.is_mac:
        return [
            *common, MacBattery(host.run), MacThermal(host.run), MacMemory(host.run, host.boot),
            MacSleep(host.run), MacUser(host.run), MacPurgeable(directories), *_links(MacLink(host.run)),
        ]  # fmt: skip
    linux: list[Sensor] = [*common, Meminfo(host.files), Load(host.files, host.boot)]
    if kind.is_phone:
        run = one_at_a_time(host.run)
        battery: Sensor = TermuxBattery(run)
        if kind is HostClass.PHONE_PROOT:
            battery = Sidecar(host.files, sidecar_file.lstrip("/"))
        return [*linux, battery, OwnProcesses(host.files, host.uid), FakedFiles(host.files, host.boot)]
    linux += [PressureStall(host.files, host.boot), ControlGroup(host.files), Btrfs(host.files, directories)]
    if kind is HostClass.CONTAINER:
        return [*linux, *_gpus(host)]
    linux += [
        ThermalZones(host.files, host.boot, host.busy), Hwmon(host.files), CpuThrottle(host.files, host.boot),
        PowerSupply(host.files), TerminalUser(host.files, SystemClock().now),
    ]  # fmt: skip
    if kind is HostClass.PI:
        linux.append(Vcgencmd(host.files, host.run))
    return [*linux, *_links(MeteredLink(host.run)), *_gpus(host)]


def _links(sensor: Sensor) -> list[Sensor]:
    """The sensor if it can tell: one answer shows that; where there is none, nobody knows of the link."""
    return [sensor] if any(one.quality is Quality.OK for one in sensor.read()) else []


def has_gpu(sensors: Sequence[Sensor]) -> bool:
    """Whether one of the sensors reads a GPU, so that the host has a gate for it."""
    return any(isinstance(sensor, NvidiaSmi | AmdGpu) for sensor in sensors)


def knows_link(sensors: Sequence[Sensor]) -> bool:
    """Whether one of the sensors knows a metered link, so that the host has a gate for it."""
    return any(isinstance(sensor, MeteredLink | MacLink | Sidecar) for sensor in sensors)


def one_at_a_time(run: Run) -> Run:
    """A runner that has one child at most, as phones count processes of all apps together."""
    turn = threading.Lock()

    def run_in_turn(argv: Sequence[str], deadline_seconds: float) -> Text:
        with turn:
            return run(argv, deadline_seconds)

    return run_in_turn


def _gpus(host: Host) -> list[Sensor]:
    found: list[Sensor] = []
    if any(one.quality is not Quality.UNSUPPORTED for one in NvidiaSmi(host.run).read()):
        found.append(NvidiaSmi(host.run))
    if any(one.quality is not Quality.UNSUPPORTED for one in AmdGpu(host.files).read()):
        found.append(AmdGpu(host.files))
    return found


def _is_virtual(files: HostFiles) -> bool:
    """A container, or a virtual machine by its CPU's hypervisor bit or its vendor."""
    if files.path(".dockerenv").exists() or files.path("run/.containerenv").exists():
        return True
    if files.text("sys/hypervisor/type").value is not None:
        return True
    return " hypervisor" in (files.text("proc/cpuinfo").value or "")


def work_directories(state_root: Path) -> dict[str, str]:
    """The directories that work writes to, by label."""
    return {"state": str(state_root)}

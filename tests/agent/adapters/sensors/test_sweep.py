"""The sweep: who is asked when, and what is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from journeyman.adapters.sensors.access import HostFiles, Text
from journeyman.adapters.sensors.catalogue import Host, has_gpu, host_facts, sensors_for
from journeyman.adapters.sensors.sweep import SensorSweep
from journeyman.core.gates.host_class import HostClass, HostFacts, host_class
from journeyman.model.readings import Measurement, Quality, Reading, missing
from tests.support.gates import NOON
from tests.support.host_tree import Programs, Ticker, host_files


class Scripted:
    """Implements `Sensor`: says what the test wants it to say next."""

    name = "scripted"

    def __init__(self, period_seconds: float = 5.0) -> None:
        self.period_seconds = period_seconds
        self.says: Sequence[Measurement] = [Measurement("a", 1.0, "count", "s")]
        self.asked = 0

    def read(self) -> Sequence[Measurement]:
        self.asked += 1
        return self.says


def run(sweep: SensorSweep, at: float) -> list[Reading]:
    return sweep.run(boot_now=at, wall_now=NOON, tick_seconds=5)


def test_a_sensor_is_asked_when_it_is_due() -> None:
    """A slow one is not asked at each tick, and what it said keeps its time."""
    sensor = Scripted(period_seconds=20)
    sweep = SensorSweep([sensor])
    for at in range(100, 121, 5):
        found = run(sweep, at)
    assert sensor.asked == 2
    assert [one.boot_seconds for one in found] == [120]


def test_a_sensor_that_hangs_is_asked_less_and_less() -> None:
    """Doubling up to ten minutes; its first answer ends that."""
    sensor = Scripted()
    sensor.says = [missing("a", "count", "s", Quality.TIMEOUT)]
    sweep = SensorSweep([sensor])
    for at in range(0, 7200, 5):
        run(sweep, at)
    assert sensor.asked < 20
    sensor.says = [Measurement("a", 1.0, "count", "s")]
    for at in range(7200, 7900, 5):
        run(sweep, at)
    assert sensor.asked > 20


def test_what_a_source_no_longer_says_is_forgotten() -> None:
    """A zone that vanished does not linger with its last cool value."""
    sensor = Scripted()
    sweep = SensorSweep([sensor])
    run(sweep, 0)
    sensor.says = [missing("b", "count", "s", Quality.ERROR)]
    assert [one.name for one in run(sweep, 5)] == ["b"]


def test_a_source_with_a_time_of_its_own_keeps_it() -> None:
    """The sidecar's stamp is never replaced by now."""
    sensor = Scripted()
    sensor.says = [Measurement("a", 1.0, "count", "s", boot_seconds=42.0)]
    assert run(SensorSweep([sensor]), 100)[0].boot_seconds == 42.0


def test_after_a_sleep_everybody_is_asked() -> None:
    """Forgetting makes every sensor due at once."""
    sensor = Scripted(period_seconds=600)
    sweep = SensorSweep([sensor])
    run(sweep, 0)
    sweep.forget()
    run(sweep, 5)
    assert sensor.asked == 2


class Broken(Scripted):
    """A sensor that breaks its contract after its first answer."""

    name = "broken"

    def read(self) -> Sequence[Measurement]:
        if self.asked:
            raise ZeroDivisionError
        return super().read()


def test_a_sensor_with_a_bug_costs_its_own_readings(capfd: pytest.CaptureFixture[str]) -> None:
    """What it once said is an error from then on, and the others are read."""
    fine = Scripted()
    fine.says = [Measurement("b", 2.0, "count", "s")]
    sweep = SensorSweep([Broken(), fine])
    run(sweep, 0)
    found = {one.name: (one.value, one.quality) for one in run(sweep, 5)}
    assert found == {"a": (None, Quality.ERROR), "b": (2.0, Quality.OK)}


def test_a_battery_that_does_not_answer_makes_a_laptop(tmp_path: Path) -> None:
    """A Mac whose pmset hangs at the start is not taken for a desktop, which would run until it is empty."""
    programs = Programs({"pmset": Text(None, Quality.TIMEOUT, "slow")})
    found = Host(files=HostFiles(tmp_path), run=programs, boot=Ticker(), system="darwin", environ={}, uid=1)
    assert host_class(host_facts(found)) is HostClass.MAC_LAPTOP


def host(
    root: Path, files: dict[str, str], programs: dict[str, str] | None = None, *, system: str = "linux"
) -> Host:
    return Host(
        files=host_files(root, files),
        run=Programs(programs or {}),
        boot=Ticker(90_000),
        system=system,
        environ={},
        uid=1000,
    )


BATTERY = {"sys/class/power_supply/BAT0/type": "Battery", "sys/class/power_supply/BAT0/status": "Full",
           "sys/class/power_supply/BAT0/capacity": "99"}  # fmt: skip


def test_host_classes_are_found_by_what_is_there(tmp_path: Path) -> None:
    """Each class by the file or program that gives it away."""
    pi = {"proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\x00"}
    guest = {"proc/sys/kernel/osrelease": "6.17.0-PRoot-Distro"}
    virtual = {"proc/cpuinfo": "flags\t: fpu hypervisor lahf_lm"}
    pmset = {"pmset -g batt": "Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t80%; charged;\n"}
    cases = [
        (host(tmp_path / "a", {}), HostClass.LINUX_SERVER),
        (host(tmp_path / "b", BATTERY), HostClass.LINUX_LAPTOP),
        (host(tmp_path / "c", pi), HostClass.PI),
        (host(tmp_path / "d", guest), HostClass.PHONE_PROOT),
        (host(tmp_path / "e", virtual), HostClass.CONTAINER),
        (host(tmp_path / "f", {}, pmset, system="darwin"), HostClass.MAC_LAPTOP),
        (
            host(tmp_path / "g", {}, {"pmset": "Now drawing from 'AC Power'\n"}, system="darwin"),
            HostClass.MAC_DESKTOP,
        ),
    ]
    assert [host_class(host_facts(one)) for one, _ in cases] == [kind for _, kind in cases]
    assert host_class(HostFacts(termux=True)) is HostClass.PHONE_TERMUX


def test_a_phone_reads_its_battery_and_nothing_that_is_denied(tmp_path: Path) -> None:
    """No thermal zones, no power supplies, no netlink: only what Android lets an app have."""
    one = host(tmp_path, {})
    names = {sensor.name for sensor in sensors_for(one, HostClass.PHONE_PROOT, {"state": "/"})}
    assert names == {"disk_space", "meminfo", "load", "sidecar", "processes", "faked_files"}
    assert "termux_battery" in {sensor.name for sensor in sensors_for(one, HostClass.PHONE_TERMUX, {})}


def test_a_gpu_gate_needs_a_gpu(tmp_path: Path) -> None:
    """A host without one has no sensor that would be unknown for ever."""
    assert not has_gpu(sensors_for(host(tmp_path / "a", {}), HostClass.LINUX_SERVER, {}))
    smi = {"nvidia-smi --help": '"index"', "nvidia-smi --query": "0, 50, 1000, 0\n"}
    assert has_gpu(sensors_for(host(tmp_path / "b", {}, smi), HostClass.LINUX_SERVER, {}))

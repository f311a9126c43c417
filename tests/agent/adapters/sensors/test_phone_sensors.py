"""Phones: what Termux:API prints, what PRoot fakes, and what the sidecar writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import journeyman
from journeyman.adapters.sensors.access import HostFiles, Text
from journeyman.adapters.sensors.load import Load, sysinfo_load
from journeyman.adapters.sensors.processes import OwnProcesses
from journeyman.adapters.sensors.proot import FakedFiles, banned_sources
from journeyman.adapters.sensors.sidecar import Sidecar
from journeyman.adapters.sensors.termux_battery import TermuxBattery
from journeyman.model.readings import Quality
from tests.support.host_tree import Programs, Ticker, host_files, quality_of, value_of

SAMPLE = {
    "present": True, "technology": "Li-ion", "health": "GOOD", "plugged": "PLUGGED_USB", "status": "CHARGING",
    "temperature": 31.4, "voltage": 4123, "current": -512000, "percentage": 78, "level": 78, "scale": 100,
}  # fmt: skip
# proot-distro's sysdata.py binds these over files that Android denies.
FAKED = {
    "proc/uptime": "124.08 932.80\n",
    "proc/loadavg": "0.12 0.07 0.02 2/165 765\n",
    "proc/vmstat": "oom_kill 0\n",
    "proc/sys/kernel/osrelease": "6.17.0-PRoot-Distro\n",
}


def termux(**changes: object) -> TermuxBattery:
    return TermuxBattery(Programs({"termux-battery-status": json.dumps({**SAMPLE, **changes})}))


def test_a_phone_on_its_cable() -> None:
    """The shape that the app prints today."""
    found = termux().read()
    assert value_of(found, "power.on_battery") == 0
    assert value_of(found, "power.charge") == 78
    assert value_of(found, "battery.temperature") == 31.4


@pytest.mark.parametrize("current", [-512000, 512000, 0])
def test_the_sign_of_the_current_means_nothing(current: int) -> None:
    """It depends on the vendor; the plug decides."""
    assert value_of(termux(current=current).read(), "power.on_battery") == 0


def test_full_on_the_cable_is_plugged_in() -> None:
    """syncthing-android#979: status FULL stopped the work at 100 %."""
    found = termux(status="FULL", percentage=100).read()
    assert value_of(found, "power.on_battery") == 0


def test_sentinels_are_unknown() -> None:
    """termux-api: a missing temperature is no -214748364.8, a missing plug is no plug and no battery."""
    found = termux(temperature=-214748364.8, voltage=-1000, plugged="PLUGGED_-1").read()
    assert quality_of(found, "battery.temperature") is Quality.SUSPECT
    assert quality_of(found, "power.on_battery") is Quality.SUSPECT


def test_old_versions_lack_keys() -> None:
    """A vanished key is a missing value, not zero."""
    old = {key: value for key, value in SAMPLE.items() if key not in {"percentage", "temperature", "level"}}
    found = TermuxBattery(Programs({"termux-battery-status": json.dumps(old)})).read()
    assert quality_of(found, "power.charge") is Quality.ERROR
    assert quality_of(found, "battery.temperature") is Quality.ERROR


def test_overheat_of_the_system_itself_counts() -> None:
    """Android's own word needs no threshold of ours."""
    assert value_of(termux(health="OVERHEAT").read(), "battery.overheat") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "Error: no permission"])
def test_what_is_no_report_is_an_error(text: str) -> None:
    """An app that is missing prints anything."""
    assert quality_of(TermuxBattery(Programs({"termux": text})).read(), "power.on_battery") is Quality.ERROR


def test_a_call_that_hangs_is_three_timeouts_and_no_value() -> None:
    """termux-api#861: every signal of the call is unknown."""
    found = TermuxBattery(Programs({"termux": Text(None, Quality.TIMEOUT, "slow")})).read()
    assert [one.quality for one in found] == [Quality.TIMEOUT] * 3


def sidecar(root: Path, text: str) -> Sidecar:
    return Sidecar(host_files(root, {"shared/sensors.json": text}), "shared/sensors.json")


def test_the_sidecars_report_keeps_its_age(tmp_path: Path) -> None:
    """The guest never gives an old report the time of its reading."""
    found = sidecar(tmp_path, json.dumps({"bootSeconds": 812.5, "battery": SAMPLE})).read()
    assert {one.boot_seconds for one in found} == {812.5}
    assert value_of(found, "power.charge") == 78


@pytest.mark.parametrize(
    ("text", "quality"),
    [
        (json.dumps({"battery": SAMPLE}), Quality.SUSPECT),
        (json.dumps({"bootSeconds": "now", "battery": SAMPLE}), Quality.SUSPECT),
        ('{"bootSeconds": 1, "batt', Quality.ERROR),
        (json.dumps({"bootSeconds": 1}), Quality.ERROR),
    ],
)
def test_a_report_without_a_time_is_not_believed(tmp_path: Path, text: str, quality: Quality) -> None:
    """Half a file, or one that does not say of when it is, has no values."""
    found = sidecar(tmp_path, text).read()
    assert {one.quality for one in found} == {quality}
    assert {one.value for one in found} == {None}


def test_no_sidecar_is_no_plug(tmp_path: Path) -> None:
    """A guest that sees no file knows nothing."""
    assert (
        quality_of(Sidecar(HostFiles(tmp_path), "no.json").read(), "power.on_battery") is Quality.UNSUPPORTED
    )


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"proc/uptime": FAKED["proc/uptime"]}, id="uptime-stands-still"),
        pytest.param({"proc/sys/kernel/osrelease": FAKED["proc/sys/kernel/osrelease"]}, id="kernel-name"),
        pytest.param(
            {"proc/self/status": "Name:\tpython\nTracerPid:\t7\n", "proc/7/comm": "proot\n"}, id="tracer"
        ),
    ],
)
def test_any_sign_of_proot_bans_the_faked_sources(tmp_path: Path, files: dict[str, str]) -> None:
    """One sign is enough, as each guest lacks another one."""
    assert {"loadavg", "stat", "vmstat", "uptime"} <= banned_sources(
        host_files(tmp_path, files), Ticker(90_000)
    )


def test_a_true_uptime_bans_nothing(tmp_path: Path) -> None:
    """On a real host /proc/uptime is the boot-time clock; a debugger is no PRoot."""
    files = {"proc/uptime": "90000.12 5.0", "proc/sys/kernel/osrelease": "6.8.0-generic",
             "proc/self/status": "TracerPid:\t9\n", "proc/9/comm": "gdb\n"}  # fmt: skip
    assert not banned_sources(host_files(tmp_path, files), Ticker(90_000.1))


def test_this_host_is_believed() -> None:
    """The detector has no false alarm on the machine that runs this test."""
    from journeyman.adapters.sensors.clocks import HostClocks

    assert not banned_sources(HostFiles(), HostClocks().boot)


def test_a_faked_load_is_not_read(tmp_path: Path) -> None:
    """Under PRoot /proc/loadavg says 0.12 for ever; sysinfo(2) cannot be faked by a file."""
    found = Load(host_files(tmp_path, FAKED), Ticker(90_000), by_call=lambda: 3.5).read()
    assert (found[0].value, found[0].source) == (3.5, "sysinfo")
    (count,) = FakedFiles(host_files(tmp_path, FAKED), Ticker(90_000)).read()
    assert "loadavg" in count.detail


def test_a_denied_load_is_skipped(tmp_path: Path) -> None:
    """psutil#2195, azure-cli#16506: Android denies the file; that is no traceback."""

    def denied() -> float:
        raise PermissionError(13, "Permission denied")

    (found,) = Load(HostFiles(tmp_path), Ticker(), by_call=denied).read()
    assert (found.value, found.quality) == (None, Quality.DENIED)


def test_sysinfo_agrees_with_this_hosts_loadavg() -> None:
    """The structure is laid out as the kernel writes it."""
    assert sysinfo_load() == pytest.approx(float(Path("/proc/loadavg").read_text().split()[0]), abs=2.0)


def test_processes_of_our_user_are_counted(tmp_path: Path) -> None:
    """Shims and workers leave our tree, so the user is what they have in common."""
    files = {
        f"proc/{pid}/status": f"Name:\tx\nUid:\t{uid}\t0\t0\t0\n"
        for pid, uid in ((1, 0), (7, 10123), (8, 10123))
    }
    assert value_of(OwnProcesses(host_files(tmp_path, files), 10123).read(), "own.processes") == 2


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("AF_NETLINK", id="termux-app#2993"),
        pytest.param("net_if_addrs", id="iroh#2324"),
        pytest.param("if_nameindex", id="libtorrent#7205"),
        pytest.param("os.link(", id="proot#284"),
        pytest.param("hardlink_to", id="proot#393"),
        pytest.param("disablesleep", id="vorssaint-utils#1741"),
    ],
)
def test_the_agent_does_nothing_that_a_phone_or_a_shut_mac_punishes(word: str) -> None:
    """Android denies netlink, PRoot breaks hard links, and a Mac that may not sleep runs empty."""
    product = Path(journeyman.__file__).parent
    assert not [path for path in product.rglob("*.py") if word in path.read_text()]

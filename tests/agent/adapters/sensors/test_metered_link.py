"""Metered links: what NetworkManager and macOS say of them, and what a host does about it."""

from __future__ import annotations

import errno
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.adapters.sensors.access import Text
from journeyman.adapters.sensors.catalogue import Host, knows_link, sensors_for
from journeyman.adapters.sensors.mac_link import CONSTRAINED, EXPENSIVE, MacLink, kernel_flag
from journeyman.adapters.sensors.metered_link import QUESTION, MeteredLink
from journeyman.core.gates.conditions import updatable
from journeyman.core.gates.engine import judged, started, sweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks, NetworkMarks
from journeyman.core.gates.report import report
from journeyman.core.gates.rules import Level
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.model.readings import Quality
from journeyman_updater.core.postponement import check_gates
from journeyman_updater.errors import PostponedError
from tests.support.gates import reading
from tests.support.host_tree import Programs, host_files, quality_of, value_of

ASKED = " ".join(QUESTION)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("answer", "value"), [("u 0\n", 0), ("u 1\n", 1), ("u 2\n", 0), ("u 3\n", 1), ("u 4\n", 0)]
)
def test_a_guessed_yes_is_a_yes(answer: str, value: float) -> None:
    """Of NetworkManager's five answers two mean metered."""
    assert value_of(MeteredLink(Programs({ASKED: answer})).read(), "network.metered") == value


@pytest.mark.parametrize(
    ("answer", "quality"),
    [
        (Text(None, Quality.TIMEOUT), Quality.TIMEOUT),
        ("b true\n", Quality.ERROR),
        ("u 5\n", Quality.ERROR),
    ],
)
def test_what_is_no_answer_is_not_taken_for_unmetered(answer: str | Text, quality: Quality) -> None:
    """Silence and other answers have no value."""
    found = MeteredLink(Programs({ASKED: answer})).read()
    assert (value_of(found, "network.metered"), quality_of(found, "network.metered")) == (None, quality)


def test_only_a_host_whose_link_is_known_has_the_gate(tmp_path: Path) -> None:
    """Without NetworkManager, in a container, and where a person allows it, there is no such gate."""
    knowing = Host(host_files(tmp_path, {}), Programs({ASKED: "u 4\n"}), lambda: 0.0)
    silent = Host(host_files(tmp_path, {}), Programs({}), lambda: 0.0)
    assert knows_link(sensors_for(knowing, HostClass.LINUX_LAPTOP, {}))
    assert not knows_link(sensors_for(knowing, HostClass.CONTAINER, {}))
    assert not knows_link(sensors_for(silent, HostClass.LINUX_LAPTOP, {}))

    def names(marks: Marks) -> set[str]:
        return {spec.name for spec in gate_specs(HostClass.LINUX_LAPTOP, marks, [], link=True)}

    assert "metered" in names(Marks())
    assert "metered" not in names(Marks(network=NetworkMarks(metered_ok=True)))


ROUTED = "   route to: default\n    gateway: 172.20.10.1\n  interface: en0\n      flags: <UP>\n"


@pytest.mark.parametrize(
    ("flags", "value", "detail"),
    [
        (set(), 0, "en0"),
        ({EXPENSIVE}, 1, "en0, expensive"),
        ({CONSTRAINED}, 1, "en0, constrained"),
        ({EXPENSIVE, CONSTRAINED}, 1, "en0, expensive, constrained"),
    ],
)
def test_a_hotspot_and_low_data_mode_are_metered_on_a_mac(flags: set[int], value: float, detail: str) -> None:
    """The interface of the default route is asked for both flags."""
    asked: list[str] = []

    def flag(request: int, interface: str) -> bool:
        asked.append(interface)
        return request in flags

    [found] = MacLink(Programs({"/sbin/route -n get default": ROUTED}), flag).read()
    assert (found.value, found.detail) == (value, detail)
    assert asked == ["en0", "en0"]


def test_the_requests_are_those_of_the_kernels_header() -> None:
    """_IOWR('i', 160, struct ifreq) and 204, of 32 bytes each."""
    assert (EXPENSIVE, CONSTRAINED) == (0xC02069A0, 0xC02069CC)


def test_a_mac_that_does_not_tell_is_unknown() -> None:
    """No default route, a kernel without the flags, no `route` at all: no value, and no gate."""

    def refuses(_request: int, _interface: str) -> bool:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    routed = Programs({"/sbin/route": ROUTED})
    nowhere = Programs({"/sbin/route": Text(None, Quality.ERROR, "not in table")})
    for sensor, quality in (
        (MacLink(routed, refuses), Quality.UNSUPPORTED),
        (MacLink(nowhere), Quality.ERROR),
        (MacLink(Programs({"/sbin/route": "something else"})), Quality.ERROR),
        (MacLink(Programs({})), Quality.UNSUPPORTED),
    ):
        found = sensor.read()
        assert (value_of(found, "network.metered"), quality_of(found, "network.metered")) == (None, quality)


def test_what_the_kernel_refuses_is_an_error() -> None:
    """No kernel has an interface of that name, and none but macOS has that request."""
    with pytest.raises(OSError, match="Errno"):
        kernel_flag(EXPENSIVE, "none0")


def test_a_metered_link_delays_a_fetch_and_no_work() -> None:
    """The gate closes at once, work is still admitted, and the updater takes its word from the report."""
    marks = Marks()
    spec = next(
        one for one in gate_specs(HostClass.LINUX_SERVER, marks, [], link=True) if one.name == "metered"
    )
    engine = started([spec], 0.0)
    for at, value in ((0.0, 0.0), (5.0, 0.0), (10.0, 1.0)):
        engine, _ = sweep(engine, [reading("network.metered", value, at=at)], marks, Clocks(at, at))
    verdict = judged(engine, marks, boot_now=10.0, wall_now=NOON)
    assert {gate.name: gate.level for gate in verdict.gates}["metered"] is Level.HOLD
    assert verdict.admits
    assert updatable(verdict) == "false"
    told = report(engine, verdict, HostClass.LINUX_SERVER, boot_now=10.0, wall_now=NOON)
    with pytest.raises(PostponedError, match=r"metered \(MeteredLink\)"):
        check_gates(told, NOON, longest_age_seconds=120)

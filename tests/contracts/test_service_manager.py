"""Every adapter of the port ServiceManager keeps one contract."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from tests.contracts.service_manager import ServiceManagerContract, UpdateContract
from tests.support.debian import ensure_debian_package
from tests.support.launchd_host import LaunchdHost
from tests.support.managed_hosts import (
    SERVICE_USER,
    FakeRunitHost,
    FakeSystemdHost,
    HostWithoutManager,
    ManagedHost,
)
from tests.support.proot import proot_words
from tests.support.runit import RunitHost
from tests.support.systemd_container import INSIDE, SystemdContainer, booted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: the dummy agents read /proc"),
]


Host = TypeVar("Host", bound=ManagedHost)


@contextlib.contextmanager
def started(host: Host) -> Iterator[Host]:
    try:
        host.start()
        yield host
    finally:
        host.stop()


class TestNoManager(ServiceManagerContract):
    """The parent, where there is no service manager."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Iterator[HostWithoutManager]:
        with started(HostWithoutManager(tmp_path)) as host:
            yield host


class TestFakeSystemd(ServiceManagerContract):
    """The stand-in for systemd keeps what the real one keeps."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Iterator[FakeSystemdHost]:
        with started(FakeSystemdHost(tmp_path)) as host:
            yield host


class TestFakeRunit(ServiceManagerContract):
    """The stand-in for runit keeps what the real one keeps."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Iterator[FakeRunitHost]:
        with started(FakeRunitHost(tmp_path)) as host:
            yield host


class TestRunit(ServiceManagerContract, UpdateContract):
    """Real runit."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Iterator[RunitHost]:
        with started(RunitHost(tmp_path / "host")) as host:
            yield host


class TestRunitUnderProot(ServiceManagerContract):
    """Real runit inside a PRoot guest, as in a phone's distribution."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Iterator[RunitHost]:
        with started(RunitHost(tmp_path / "host", under=proot_words())) as host:
            yield host


class TestLaunchd(ServiceManagerContract, UpdateContract):
    """The stand-in for launchd."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Iterator[LaunchdHost]:
        with started(LaunchdHost(tmp_path)) as host:
            yield host


@pytest.fixture(scope="module")
def container() -> Iterator[SystemdContainer]:
    """Real systemd, with a user who has a manager of its own without a login."""
    ensure_debian_package("bubblewrap", "bwrap")
    with booted() as made:
        made.run("mkdir", "-p", "/srv/journeyman")
        made.run("useradd", "--create-home", SERVICE_USER)
        made.run("loginctl", "enable-linger", SERVICE_USER)
        yield made


@pytest.mark.parametrize("user", [None, SERVICE_USER], ids=["system", "user"])
@pytest.mark.parametrize(("suite", "tests"), [("inside_systemd", 16), ("inside_systemd_faults", 14)])
def test_systemd_keeps_the_contract(
    container: SystemdContainer, suite: str, tests: int, user: str | None
) -> None:
    """The whole suite passes inside a container with real systemd, in both kinds of manager."""
    home = "/root" if user is None else f"/home/{user}"
    printed = container.python(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(INSIDE / f"tests/contracts/{suite}.py"),
        user=user,
        check=False,
        HOME=home,
    )
    passed = re.search(r"^(\d+) passed in", printed, re.MULTILINE)
    assert passed, printed
    assert int(passed[1]) == tests

"""What only runit does, and how sv lies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.service.runit import RunitServiceManager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import identity_of
from journeyman_updater.core.service_files.runit import RunitSettings, render_runit
from journeyman_updater.errors import Reason, RestartError
from tests.support.proot import TermuxHost
from tests.support.runit import RunitHost
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: the dummy agents read /proc"),
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[RunitHost]:
    """0.1.0 runs under runit."""
    made = RunitHost(tmp_path / "host")
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[TermuxHost]:
    """0.1.0 runs in a guest whose PRoot is the service."""
    made = TermuxHost(tmp_path / "phone")
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_sv_reports_an_old_process_as_new_after_a_clock_step_and_is_not_believed(host: RunitHost) -> None:
    """The tool says `ok` with the old pid, and the restart counts as unproven until runsv shows a start."""
    service = host.runsvdir.services / "journeyman"
    status = service / "supervise" / "status"
    runsv = Path(f"/proc/{host.reported_pid()}/stat").read_text().rpartition(")")[2].split()[1]
    token, before = host.manager.token(), host.reported_pid()
    # runsv is held, so that it does not see sv's word yet, and the start lies in the future, as it does when
    # the clock was stepped back after it.
    os.kill(int(runsv), signal.SIGSTOP)
    honest = status.read_bytes()
    status.write_bytes((int.from_bytes(honest[:8]) + 3600).to_bytes(8) + honest[8:])
    said = subprocess.run(["sv", "restart", str(service)], capture_output=True, text=True, check=False)
    assert (said.returncode, f"(pid {before})" in said.stdout) == (0, True)
    status.write_bytes(honest)
    assert not host.manager.started_since(token)
    os.kill(int(runsv), signal.SIGCONT)
    eventually(lambda: host.manager.started_since(token))


def test_a_service_without_runsv_is_named(tmp_path: Path) -> None:
    """Where no runsvdir runs, nothing can be said of the agent, and the reason says so."""
    manager = RunitServiceManager(
        SubprocessCommandRunner(), SystemClock(), service=tmp_path / "on", definition=tmp_path / "sv"
    )
    for ask in (manager.running, manager.token, manager.restart):
        with pytest.raises(RestartError) as caught:
            ask()
        assert caught.value.reason is Reason.DOMAIN_UNAVAILABLE


def test_a_runsv_that_was_killed_is_named(host: RunitHost) -> None:
    """Once runsv has gone, its last word is no answer, and a restart is refused by name."""
    host.runsvdir.kill()
    for ask in (host.manager.running, host.manager.restart):
        with pytest.raises(RestartError) as caught:
            ask()
        assert caught.value.reason is Reason.DOMAIN_UNAVAILABLE


def test_a_phone_restarts_in_good_order(phone: TermuxHost) -> None:
    """PRoot ignores SIGTERM, so the service's own script passes it on; the agent stops by itself."""
    token = phone.outside.token()
    phone.outside.restart()
    assert phone.outside.started_since(token)
    eventually(lambda: phone.starts() == ["0.1.0", "0.1.0"] and phone.reported() == "0.1.0")
    assert phone.stops() == ["0.1.0"]


def test_killing_proot_leaves_no_second_agent(phone: TermuxHost) -> None:
    """Guests go on when PRoot is killed; the service ends them before it starts new ones."""
    old = identity_of(phone.reported_pid())
    assert old is not None
    os.kill(_pid_of("proot", phone), signal.SIGKILL)
    eventually(
        lambda: phone.starts() == ["0.1.0", "0.1.0"] and phone.reported() == "0.1.0", within_seconds=30
    )
    assert not old.is_running()
    assert "SECOND AGENT" not in phone.starts()


def _pid_of(program: str, phone: TermuxHost) -> int:
    [found] = [
        pid
        for pid in phone.runsvdir.descendants()
        if Path(f"/proc/{pid}/comm").read_text().strip() == program
    ]
    return found


def test_a_wake_up_runs_the_updater_before_its_time(host: RunitHost, tmp_path: Path) -> None:
    """The updater's own service runs it at once, and again as soon as the agent touches the file."""
    log = tmp_path / "updater runs"
    updater = tmp_path / "the updater"
    updater.write_text(f'#!/bin/sh\necho "$@" >> "{log}"\n')
    updater.chmod(0o755)
    settings = RunitSettings(
        root=str(host.root.path),
        guard="/bin/false",
        updater=str(updater),
        user="",
        path=os.environ["PATH"],
        log_folder="",
        update_every_seconds=600,
        wake_up_seconds=1,
    )
    manager = RunitServiceManager(
        SubprocessCommandRunner(),
        SystemClock(),
        service=host.runsvdir.services / "journeyman-updater",
        definition=host.runsvdir.definitions / "journeyman-updater",
    )
    manager.install(render_runit(settings)["journeyman-updater"])
    manager.enable()
    eventually(lambda: log.exists() and log.read_text().count("\n") == 1, within_seconds=15)
    assert log.read_text() == f"--root {host.root.path}\n"
    host.order("/usr/bin/touch", str(host.root.wake_up_file))
    eventually(lambda: log.read_text().count("\n") == 2, within_seconds=15)
    manager.uninstall()

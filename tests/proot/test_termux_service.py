"""What `proot/install.sh` installs on a phone, with real runit and real PRoot."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman.adapters.sensors.access import HostFiles
from journeyman.adapters.sensors.sidecar import Sidecar
from journeyman_updater.contract import identity_of
from tests.support.host_tree import value_of
from tests.support.proot import TermuxHost
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
# Of the 32 that Android lets all apps together have.
MOST_PROCESSES = 12


@contextmanager
def phone(folder: Path, *options: str, busybox: bool = False) -> Iterator[TermuxHost]:
    """A phone whose service runs."""
    made = TermuxHost(folder / "phone", busybox=busybox)
    try:
        made.start(*options)
        yield made
    finally:
        made.stop()


def report(host: TermuxHost) -> dict[str, object]:
    """What the service wrote last; empty before its first report."""
    path = host.termux.shared / "sensors.json"
    return json.loads(path.read_bytes()) if path.exists() else {}


def command_lines(host: TermuxHost) -> list[str]:
    """All that runsvdir has below it; zombies have no command line."""
    lines = []
    for pid in host.runsvdir.descendants():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        lines += [words.replace(b"\0", b" ").decode()] if words else []
    return lines


def wish(host: TermuxHost, pid: int) -> None:
    """Wishes the phone awake for as long as that process lives, as the agent does."""
    identity = identity_of(pid)
    assert identity is not None
    shared = host.termux.shared
    (shared / ".wish").write_text(f"{pid} {identity.start_time}\n")
    (shared / ".wish").replace(shared / "awake")
    tell(host)


def tell(host: TermuxHost) -> None:
    keeper, start = (host.termux.shared / "keeper").read_text().split()
    identity = identity_of(int(keeper))
    assert identity is not None
    assert identity.start_time == start
    os.kill(int(keeper), signal.SIGUSR1)


def lock_word(host: TermuxHost) -> str:
    return (host.termux.shared / "wake-lock").read_text().strip()


@pytest.mark.parametrize(
    "busybox",
    [pytest.param(False, id="dash"), pytest.param(True, id="busybox", marks=pytest.mark.full)],
)
def test_the_agent_reads_what_the_service_writes(tmp_path: Path, *, busybox: bool) -> None:
    """Battery and link arrive with the moment at which they were asked for, and no name of a network."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    with phone(tmp_path, busybox=busybox) as host:
        eventually(lambda: report(host), within_seconds=30)
        path = host.termux.shared / "sensors.json"
        found = Sidecar(HostFiles(), str(path).lstrip("/")).read()
        assert {value_of(found, "power.charge"), value_of(found, "battery.temperature")} == {97, 29.5}
        assert {value_of(found, "power.on_battery"), value_of(found, "network.metered")} == {0}
        # The kernel counts starts in hundredths.
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert {one.boot_seconds for one in found} == {found[0].boot_seconds}
        assert before - 0.01 <= (found[0].boot_seconds or 0) <= now
        assert "ssid" not in path.read_text()
        assert "192.0.2.17" not in path.read_text()


def test_a_report_that_hangs_is_cut_off_and_the_last_one_ages(tmp_path: Path) -> None:
    """After the deadline nothing of the call is left, no old values get a new time, and it is asked again."""
    with phone(tmp_path, "--every", "1", "--answer-within", "1") as host:
        eventually(lambda: report(host), within_seconds=30)
        host.termux.hang("termux-battery-status")
        asked = host.termux.calls("termux-battery-status")
        eventually(lambda: host.termux.calls("termux-battery-status") >= asked + 2, within_seconds=30)
        last = report(host)
        hanging = [line for line in command_lines(host) if "sleep 600" in line]
        assert len(hanging) <= 1
        asked = host.termux.calls("termux-battery-status")
        (host.folder / "termux-battery-status.hangs").unlink()
        eventually(lambda: report(host) != last, within_seconds=60)
        assert host.termux.calls("termux-battery-status") >= asked
        eventually(lambda: not [line for line in command_lines(host) if "sleep 600" in line])


@pytest.mark.full
def test_without_wifi_the_link_is_metered(tmp_path: Path) -> None:
    """The phone's own link costs; a release waits then."""
    with phone(tmp_path, "--every", "1") as host:
        host.termux.answer("termux-wifi-connectioninfo", {"supplicant_state": "DISCONNECTED"})
        eventually(lambda: report(host).get("wifi") == "DISCONNECTED", within_seconds=30)
        path = str(host.termux.shared / "sensors.json").lstrip("/")
        assert value_of(Sidecar(HostFiles(), path).read(), "network.metered") == 1


def test_a_phone_has_twelve_processes_at_most(tmp_path: Path) -> None:
    """Without workers, with an updater at work and Termux:API hanging; and a stop leaves none of them."""
    made = TermuxHost(tmp_path / "phone")
    updater = made.folder / "an updater"
    updater.write_text(f'#!/bin/sh\necho $$ > "{made.folder}/updating"\nexec sleep 600\n')
    updater.chmod(0o755)
    made.updater_program, pid_file = str(updater), made.folder / "updating"
    try:
        made.start("--every", "1", "--answer-within", "60")
        made.termux.hang("termux-battery-status")
        eventually(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"), within_seconds=30)
        wanted = ("runsv journeyman", "svlogd", "/run", "proot", "parent.py", "sleep 600", "timeout")
        eventually(
            lambda: all(any(word in line for line in command_lines(made)) for word in wanted),
            within_seconds=30,
        )
        lines = command_lines(made)
        assert len(lines) <= MOST_PROCESSES, "\n".join(lines)
        updating = identity_of(int(pid_file.read_text()))
        assert updating is not None
        assert made.termux.install("--uninstall").returncode == 0
        assert not updating.is_running()
    finally:
        made.stop()


def test_the_phone_is_kept_awake_while_the_agent_wishes_it(tmp_path: Path) -> None:
    """Not before, not after, and what came of it is said."""
    with phone(tmp_path) as host:
        eventually(lambda: report(host), within_seconds=30)
        assert (host.termux.wakefulness(), lock_word(host)) == ([], "released")
        wish(host, host.reported_pid())
        eventually(lambda: lock_word(host) == "held", within_seconds=30)
        assert host.termux.wakefulness() == ["lock"]
        (host.termux.shared / "awake").unlink()
        tell(host)
        eventually(lambda: lock_word(host) == "released", within_seconds=30)
        assert host.termux.wakefulness() == ["lock", "unlock"]


@pytest.mark.full
def test_a_lock_that_is_not_given_is_said_to_have_failed(tmp_path: Path) -> None:
    """What the phone refuses is never reported as held."""
    with phone(tmp_path) as host:
        (host.folder / "no-lock").touch()
        eventually(lambda: report(host), within_seconds=30)
        wish(host, host.reported_pid())
        eventually(lambda: lock_word(host) == "failed", within_seconds=30)


@pytest.mark.full
@pytest.mark.parametrize("victim", ["agent", "service"])
def test_no_lock_outlives_who_wished_it(tmp_path: Path, victim: str) -> None:
    """An agent that was killed no longer keeps the phone awake, nor does a service that was."""
    with phone(tmp_path, "--every", "1") as host:
        eventually(lambda: report(host), within_seconds=30)
        agent = host.reported_pid()
        wish(host, agent)
        eventually(lambda: lock_word(host) == "held", within_seconds=30)
        running = host.outside.running()
        assert running is not None
        os.kill(agent if victim == "agent" else running.pid, signal.SIGKILL)
        eventually(lambda: host.termux.wakefulness()[-1] == "unlock", within_seconds=40)
        eventually(lambda: host.starts() == ["0.1.0", "0.1.0"], within_seconds=30)


def test_a_killed_service_leaves_no_second_agent(tmp_path: Path) -> None:
    """The next run finds nothing of the last one's guests, and starts one agent."""
    with phone(tmp_path) as host:
        old, service = identity_of(host.reported_pid()), host.outside.running()
        assert old is not None
        assert service is not None
        os.kill(service.pid, signal.SIGKILL)
        eventually(
            lambda: host.starts() == ["0.1.0", "0.1.0"] and host.reported() == "0.1.0", within_seconds=40
        )
        assert not old.is_running()


def test_the_second_installation_changes_nothing(tmp_path: Path) -> None:
    """It says so, and the agent runs on; with another option it writes that, and starts the service anew."""
    with phone(tmp_path) as host:
        agent, root = host.reported_pid(), str(host.root.path)
        again = host.termux.install("--root", root)
        assert (again.returncode, "nothing to write" in again.stdout) == (0, True), again.stderr
        assert host.reported_pid() == agent

        dry = host.termux.install("--root", root, "--every", "30", "--dry-run")
        conf = host.runsvdir.services / "journeyman" / "conf"
        assert f"would write {conf}" in dry.stdout
        assert "every_seconds='60'" in conf.read_text()

        asked = host.termux.start_install("--root", root, "--every", "30")
        eventually(lambda: host.stops() == ["0.1.0"], within_seconds=30)
        eventually(lambda: host.reported() == "0.1.0", within_seconds=30)
        host.root.last_beat_file.touch()
        out, err = asked.communicate(timeout=60)
        assert asked.returncode == 0, out + err
        assert "every_seconds='30'" in conf.read_text()


def test_nothing_is_left_of_a_removed_service(tmp_path: Path) -> None:
    """Processes, service, boot script and shared files are gone; the guest keeps its own."""
    with phone(tmp_path) as host:
        boot = host.termux.home / ".termux/boot/journeyman"
        assert boot.exists()
        agent = identity_of(host.reported_pid())
        assert agent is not None
        removed = host.termux.install("--uninstall")
        assert removed.returncode == 0, removed.stderr
        assert host.stops() == ["0.1.0"]
        assert not agent.is_running()
        assert [path for path in (boot, host.termux.shared) if path.exists()] == []
        assert list(host.runsvdir.services.iterdir()) == []
        eventually(lambda: command_lines(host) == [])
        assert (host.root.path / "install.json").exists()
        assert host.termux.install("--uninstall").returncode == 78


@pytest.mark.full
def test_without_termux_services_the_same_runs_in_the_foreground(tmp_path: Path) -> None:
    """The script of the service keeps the guest by itself; SIGTERM stops the agent in good order."""
    host = TermuxHost(tmp_path / "phone")
    host.lay_guest()
    made = host.termux.install("--root", str(host.root.path), "--rootfs", "/", "--no-service")
    run = host.termux.shared / "service" / "run"
    assert (made.returncode, f"start it with: sh {run}" in made.stdout) == (0, True), made.stderr
    service = host.termux.run(run)
    try:
        eventually(lambda: host.reported() == "0.1.0", within_seconds=30)
        service.kill()
        service.wait()
        killed = identity_of(host.reported_pid())
        # What it left behind is ended before anything starts beside it.
        service = host.termux.run(run)
        eventually(
            lambda: host.starts() == ["0.1.0", "0.1.0"] and host.reported() == "0.1.0", within_seconds=40
        )
        assert killed is None or not killed.is_running()
        service.terminate()
        assert service.wait(30) == 0
        assert host.stops()[-1] == "0.1.0"
        assert host.termux.install("--uninstall", "--no-service").returncode == 0
        assert not host.termux.shared.exists()
    finally:
        service.kill()
        service.wait()


def _without(program: str) -> Callable[[TermuxHost], None]:
    def take_away(host: TermuxHost) -> None:
        # Only what lies there is found any more.
        tools = ("sh", "cat", "dirname", "sed", "grep", "setsid", "timeout", "sv")
        for tool in tools:
            if tool != program and not (host.termux.prefix / "bin" / tool).exists():
                (host.termux.prefix / "bin" / tool).symlink_to(_which(tool))
        (host.termux.prefix / "bin" / program).unlink(missing_ok=True)
        host.termux.environment["PATH"] = str(host.termux.prefix / "bin")

    return take_away


def _which(tool: str) -> str:
    found = shutil.which(tool)
    assert found is not None
    return found


def _kept_by_another(host: TermuxHost) -> None:
    made = host.root.path / "install.json"
    made.write_text(made.read_text().replace("termux", "none"))


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        pytest.param(_without("sv"), 71, "pkg install termux-services", id="no-termux-services"),
        pytest.param(_without("proot-distro"), 71, "pkg install proot-distro", id="no-proot-distro"),
        pytest.param(_without("termux-battery-status"), 71, "pkg install termux-api", id="no-termux-api"),
        pytest.param(
            lambda host: (host.root.path / "install.json").unlink(),
            78,
            "journeyman install --service termux",
            id="nothing-in-the-guest",
        ),
        pytest.param(_kept_by_another, 78, "not installed for Termux", id="another-service"),
        pytest.param(
            lambda host: host.termux.environment.pop("PREFIX"), 71, "Run it in Termux", id="not-termux"
        ),
        pytest.param(lambda _: None, 71, "service-daemon start", id="no-runsvdir", marks=pytest.mark.full),
    ],
)
def test_what_is_missing_is_said_with_what_to_do(
    tmp_path: Path, spoil: Callable[[TermuxHost], None], code: int, says: str
) -> None:
    """One line that says what is wrong, one that says what to do, and a documented exit code."""
    host = TermuxHost(tmp_path / "phone")
    host.lay_guest()
    spoil(host)
    done = host.termux.install("--root", str(host.root.path))
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert re.fullmatch(r"journeyman: .+\n  .+\n", done.stderr)


@pytest.mark.parametrize(
    "options", [("--foo",), ("--every", "0"), ("--every", "soon"), ("--root",), ("--root", "a")]
)
def test_a_wrong_command_line_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Exit code 2, before anything is looked at."""
    assert TermuxHost(tmp_path / "phone").termux.install(*options).returncode == 2

"""What only systemd does, and how it lies; run in a container by test_service_manager.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.service.systemd import SystemdServiceManager, user_environment
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.core.service_files.systemd import AGENT_UNIT, UPDATER
from journeyman_updater.errors import HostError, Reason, RestartError
from tests.support.kept_host import dummy
from tests.support.managed_hosts import RealAgentHost, SystemdHost, start_worker
from tests.support.waiting import eventually

IS_USER = os.geteuid() != 0
PLACES = str(Path("~").expanduser()) if IS_USER else "/srv/journeyman"
SYSTEMCTL = ("systemctl", "--user") if IS_USER else ("systemctl",)
UNIT_FOLDER = Path("~/.config/systemd/user").expanduser() if IS_USER else Path("/etc/systemd/system")
# Restarts by the smallest way that might do, as tidy admins' wrappers do.
WRAPPER = """#!/bin/sh
for word; do
    shift
    [ "$word" = restart ] && word=reload-or-restart
    set -- "$@" "$word"
done
exec /usr/bin/systemctl "$@"
"""


@pytest.fixture
def real() -> Iterator[RealAgentHost]:
    """The real agent in place of the dummy."""
    folder = Path(tempfile.mkdtemp(dir=PLACES))
    folder.chmod(0o755)
    made = RealAgentHost(folder, user=IS_USER)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def host() -> Iterator[SystemdHost]:
    """The system's manager for root, and for others their own."""
    folder = Path(tempfile.mkdtemp(dir=PLACES))
    folder.chmod(0o755)
    made = SystemdHost(folder, user=IS_USER)
    drop_in = UNIT_FOLDER / f"{AGENT_UNIT}.d" / "test.conf"
    try:
        made.start()
        yield made
    finally:
        drop_in.unlink(missing_ok=True)
        made.stop()


def drop_in(section: str, *lines: str) -> None:
    """Changes the agent's unit, and tells systemd nothing."""
    path = UNIT_FOLDER / f"{AGENT_UNIT}.d" / "test.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join((f"[{section}]", *lines, "")))


def systemctl(*words: str) -> str:
    done = subprocess.run([*SYSTEMCTL, *words], capture_output=True, text=True, check=True, env=environment())
    return done.stdout.strip()


def environment() -> dict[str, str]:
    return {**os.environ, **(user_environment(os.getuid()) if IS_USER else {})}


def fed_for_seconds() -> float:
    """From the start of the agent to the last time it has fed the watchdog."""
    shown = systemctl(
        "show", AGENT_UNIT, "--property=WatchdogTimestampMonotonic,ExecMainStartTimestampMonotonic"
    )
    moments = {name: int(value) for name, _, value in (line.partition("=") for line in shown.splitlines())}
    return (moments["WatchdogTimestampMonotonic"] - moments["ExecMainStartTimestampMonotonic"]) / 1e6


def cgroup_of(pid: int) -> str:
    """The path by which systemd tracks a process."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    tracked = [line for line in lines if ":name=systemd:" in line] or [line for line in lines if "::" in line]
    return tracked[0].split(":", 2)[2]


def test_the_watchdog_ends_an_agent_that_hangs(host: SystemdHost) -> None:
    """An agent that gives no sign of life is killed and started again, and that shows as a start."""
    hang = host.root.run / "hang"
    token = host.manager.token()
    hang.touch()
    eventually(lambda: host.manager.facts().result == "watchdog" or host.manager.started_since(token))
    hang.unlink()
    eventually(lambda: host.manager.started_since(token) and host.reported() == "0.1.0")
    assert host.starts() == ["0.1.0", "0.1.0"]
    assert host.stops() == []


def test_it_is_known_what_starts_at_boot(host: SystemdHost) -> None:
    """The unit is enabled, and its manager runs without a login: a user's by lingering."""
    assert host.manager.facts().unit_file_state == "enabled"
    assert host.manager.lingers()
    systemctl("disable", AGENT_UNIT)
    assert host.manager.facts().unit_file_state == "disabled"
    assert host.reported() == "0.1.0"


def test_a_wrapper_that_only_reloads_is_caught(host: SystemdHost, tmp_path: Path) -> None:
    """The tool says that all is well, the agent is the old one, and the restart counts as unproven."""
    drop_in("Service", "ExecReload=/bin/true")
    systemctl("daemon-reload")
    wrapper = tmp_path / "systemctl"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    runner = SubprocessCommandRunner({**environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    manager = SystemdServiceManager(
        runner, SystemClock(), user=IS_USER, unit_folder=UNIT_FOLDER, stop_seconds=1, start_seconds=1
    )
    token = manager.token()
    with pytest.raises(RestartError) as caught:
        manager.restart()
    assert caught.value.reason is Reason.RESTART_UNPROVEN
    assert not manager.started_since(token)
    assert host.starts() == ["0.1.0"]


def test_a_start_limit_is_healed(host: SystemdHost) -> None:
    """Where a drop-in brings a limit back and a crashing agent has hit it, an explicit restart works."""
    drop_in("Unit", "StartLimitIntervalSec=600", "StartLimitBurst=1")
    systemctl("daemon-reload")
    by_hand = [*SYSTEMCTL, "restart", AGENT_UNIT]
    codes = [
        subprocess.run(by_hand, capture_output=True, env=environment(), check=False).returncode for _ in "abc"
    ]
    assert codes[-1] != 0
    assert host.manager.facts().result == "start-limit-hit"
    token = host.manager.token()
    for _ in range(3):
        host.manager.restart()
    eventually(lambda: host.manager.started_since(token) and host.reported() == "0.1.0")


def test_a_changed_unit_is_read_again(host: SystemdHost) -> None:
    """A unit that was changed without daemon-reload is in force after a restart."""
    drop_in("Service", "Environment=CHANGED=yes")
    host.manager.restart()
    eventually(lambda: host.reported() == "0.1.0" and len(host.starts()) == 2)
    assert b"CHANGED=yes" in Path(f"/proc/{host.reported_pid()}/environ").read_bytes().split(b"\0")
    assert not host.manager.facts().needs_reload


def test_a_masked_unit_is_named(host: SystemdHost) -> None:
    """A unit that is masked is told apart from one that fails, with the command that helps."""
    systemctl("mask", "--runtime", AGENT_UNIT)
    systemctl("stop", AGENT_UNIT)
    # The file in /etc is stronger than a mask in /run, so it has to make room, as when an admin masks.
    hidden = UNIT_FOLDER / f"{AGENT_UNIT}.hidden"
    (UNIT_FOLDER / AGENT_UNIT).rename(hidden)
    try:
        with pytest.raises(RestartError) as caught:
            host.manager.restart()
    finally:
        hidden.rename(UNIT_FOLDER / AGENT_UNIT)
        systemctl("unmask", "--runtime", AGENT_UNIT)
    assert caught.value.reason is Reason.SERVICE_DISABLED
    assert "unmask" in caught.value.advice


def test_a_manager_that_cannot_be_reached_is_named(host: SystemdHost) -> None:
    """Without a login and without lingering there is no manager of the user's own."""
    runner = SubprocessCommandRunner({"XDG_RUNTIME_DIR": "/nowhere", "DBUS_SESSION_BUS_ADDRESS": ""})
    manager = SystemdServiceManager(runner, SystemClock(), user=True, unit_folder=UNIT_FOLDER)
    with pytest.raises(RestartError) as caught:
        manager.running()
    assert caught.value.reason is Reason.DOMAIN_UNAVAILABLE


def test_a_unit_that_is_not_sound_is_not_installed(host: SystemdHost) -> None:
    """What systemd-analyze finds fault with changes nothing."""
    before = (UNIT_FOLDER / AGENT_UNIT).read_text()
    broken = before.replace("StartLimitIntervalSec=0", "StartLimitBurst=infinity")
    with pytest.raises(HostError):
        host.manager.install({AGENT_UNIT: broken})
    assert (UNIT_FOLDER / AGENT_UNIT).read_text() == before


def test_an_update_from_inside_the_unit_is_survived(host: SystemdHost) -> None:
    """An updater in the agent's own cgroup lives through the restart that it asks for, and commits."""
    mount = "systemd" if Path("/sys/fs/cgroup/systemd").is_dir() else "."
    cgroup = f"/sys/fs/cgroup/{mount}{cgroup_of(host.reported_pid())}"
    artifact = dummy("0.2.0").build(host.folder)
    update = (sys.executable, "-m", "journeyman", "update", "apply", "--json", str(artifact))
    join = 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", join, "sh", cgroup, *update, "--state-root", str(host.root.path)],
        env={**environment(), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ending"] == "committed"
    assert set(host.starts()[1:]) == {"0.2.0"}
    eventually(lambda: host.reported() == "0.2.0")


def test_the_agent_wakes_the_updater(host: SystemdHost) -> None:
    """Without any right over units, the agent starts the updater by touching a file; it is no part of it."""
    host.manager.enable(f"{UPDATER}.path")
    host.order("/usr/bin/touch", str(host.root.wake_up_file))
    shown = ("show", f"{UPDATER}.service", "--property=ExecMainStartTimestampMonotonic,ActiveState,Result")
    eventually(lambda: "TimestampMonotonic=0" not in systemctl(*shown) and "inactive" in systemctl(*shown))
    assert "Result=success" in systemctl(*shown)
    assert host.starts() == ["0.1.0"]


def test_a_worker_has_a_cgroup_of_its_own_and_an_uninstall_ends_it(host: SystemdHost) -> None:
    """Not even a stop of the unit ends a worker, so an uninstall does it, and leaves nothing of ours."""
    record = start_worker(host)
    assert cgroup_of(record.worker.pid).endswith(f"/{AGENT_UNIT}/worker-w1")
    host.manager.uninstall(*host.units)
    assert record.worker.is_running()
    assert end_workers(host.root.workers, SystemClock(), grace_seconds=5) == ["w1"]
    eventually(lambda: not record.worker.is_running() and not record.shim.is_running())
    assert [path.name for path in UNIT_FOLDER.rglob("dev.journeyman*") if path.is_file()] == []
    assert host.manager.facts().load_state == "not-found"
    with pytest.raises(RestartError):
        host.manager.restart()


def test_a_worker_may_make_a_sandbox(host: SystemdHost) -> None:
    """The unit's hardening leaves bubblewrap all it needs: namespaces, mounts, a new /proc, a host name."""
    run = str(host.root.run)
    folders = (
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
        "--bind",
        run,
        run,
    )
    words = ("/usr/bin/bwrap", *folders, "--unshare-all", "--hostname", "inside")
    host.order(*words, "/bin/sh", "-c", 'hostname > "$1/word"; echo end >> "$1/word"', "sh", run)
    word = host.root.run / "word"
    eventually(lambda: word.exists() and "end" in word.read_text())
    assert word.read_text() == "inside\nend\n"


def test_the_agent_cannot_change_what_it_runs_from(host: SystemdHost) -> None:
    """In a system install neither releases nor the state document can be written by the agent's user."""
    if IS_USER:
        return
    word = host.root.run / "word"
    attempt = (
        'for f in "$1"/versions/x "$1"/state.json "$1"/keys/x; do echo x >> "$f" && echo bad; done; echo end'
    )
    script = (
        f'({attempt}) > "$1/run/word" 2>/dev/null; mv "$1/state.json" "$1/gone" && echo bad >> "$1/run/word"'
    )
    host.order("/bin/sh", "-c", script, "sh", str(host.root.path))
    eventually(lambda: word.exists() and "end" in word.read_text())
    assert word.read_text() == "end\n"


def test_the_agent_is_ready_without_a_network_and_feeds_the_watchdog(real: RealAgentHost) -> None:
    """The real agent outlives its watchdog, is ended by it when it stands still, and stops in good order."""
    running = real.manager.running()
    assert running is not None
    patience = 2 * real.unit_settings().watchdog_seconds
    eventually(lambda: fed_for_seconds() > patience, within_seconds=30)
    assert real.manager.running() == running
    token = real.manager.token()
    os.kill(running.pid, signal.SIGSTOP)
    eventually(lambda: real.manager.started_since(token), within_seconds=30)
    eventually(lambda: real.reported() == "0.1.0", within_seconds=30)
    last = real.manager.token()
    real.manager.restart()
    assert real.manager.started_since(last)
    assert real.manager.facts().result == "success"

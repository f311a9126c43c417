"""`journeyman doctor` finds what is wrong with a real installation, and its advice heals it."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.control import call
from journeyman.doctor import Check, examine
from journeyman.errors import JourneymanError
from journeyman.installation import Request, install
from journeyman.settings import load_settings
from journeyman_updater.adapters.minisign_keys import SecretKey
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.installation import Target, read_made, remove
from tests.support.account_tokens import made_token
from tests.support.agents import agent
from tests.support.installable_agent import installable_agent
from tests.support.mounts import mounted, remount
from tests.support.plane import FOREMAN, RunningPlane, fleet_node, running_plane, spawn_plane
from tests.support.skewed_server import skewed_server
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
KEY = SecretKey.generate()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    with running_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, plane: RunningPlane) -> Iterator[StateRoot]:
    """An installed agent without a service manager; each test leaves it well."""
    folder = tmp_path_factory.mktemp("installed")
    root = StateRoot(folder / "root")
    artifact = installable_agent(folder / "made", KEY)
    flags = {"state_root": root.path, "server": plane.url, "token_file": plane.token_file, "node_name": "ill"}
    settings = load_settings(flags, {}).settings
    target = Target(root, "none")
    install(Request(settings, target, artifact, (KEY.public.to_file(),)), print)
    try:
        yield root
    finally:
        made = read_made(root)
        assert made is not None
        remove(root, made, purge=True)


def checks(root: StateRoot, **changes: object) -> dict[str, Check]:
    """All checks by name.

    Args:
        root: the state root.
        changes: settings that differ from those of the root.
    """
    settings = load_settings({"state_root": root.path, **changes}, {}).settings
    return {check.name: check for check in examine(settings)}


def doctor(root: StateRoot, **changes: object) -> list[Check]:
    """The checks that are not well."""
    return [check for check in checks(root, **changes).values() if not check.is_well]


def advised(check: Check) -> list[str]:
    """The command in the advice of a check."""
    return shlex.split(check.advice.split("`")[1])


def test_a_sound_host_is_well(root: StateRoot) -> None:
    """Right after an installation nothing is found, by the command's exit code as well."""
    assert doctor(root) == []
    command = [sys.executable, "-m", "journeyman", "doctor", "--json", "--state-root", str(root.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(check["is_well"] for check in json.loads(done.stdout))


def test_a_host_without_an_agent_is_found(tmp_path: Path) -> None:
    """That nothing is installed is no fault; that no agent runs, and no server is known, is."""
    names = {check.name for check in doctor(StateRoot(tmp_path / "none"))}
    assert {"agent", "server"} <= names
    assert not names & {"service", "updates"}


def test_a_file_of_another_user_is_found_and_healed(root: StateRoot) -> None:
    """In a root of a user's own, a file of somebody else is named; the advice gives it back."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root can give a file away")
    lost = root.path / "lost"
    lost.touch()
    os.chown(lost, 12345, -1)
    try:
        [check] = doctor(root)
        assert check.name == "ownership"
        assert str(lost) in check.finding
        subprocess.run(advised(check)[1:], check=True)
        assert doctor(root) == []
    finally:
        lost.unlink()


def test_an_interpreter_that_is_gone_is_found_and_healed(root: StateRoot, tmp_path: Path) -> None:
    """A launcher whose Python vanished is named, with what takes its place; a link there heals it."""
    gone = tmp_path / "python"
    text = root.guard_launcher.read_text()
    recorded = str(Path(sys.executable).resolve())
    assert recorded in text
    root.guard_launcher.write_text(text.replace(recorded, str(gone)))
    try:
        [check] = doctor(root)
        assert check.name == "interpreter"
        assert str(gone) in check.finding
        gone.symlink_to(recorded)
        assert doctor(root) == []
    finally:
        root.guard_launcher.write_text(text)


def test_a_second_agent_on_the_root_is_found_and_healed(root: StateRoot) -> None:
    """One started by hand while the service was down keeps the service's own out; `kill` lets it in."""
    parent = ParentServiceManager(root.guard_file, SystemClock())
    keeper, kept = parent.parent(), parent.running()
    assert keeper is not None
    assert kept is not None
    os.kill(keeper.pid, signal.SIGSTOP)
    os.kill(kept.pid, signal.SIGKILL)
    eventually(lambda: not kept.is_running())
    command = [sys.executable, "-m", "journeyman", "run", "--state-root", str(root.path)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as by_hand:
        eventually(lambda: answers(root) == by_hand.pid, within_seconds=30, every_seconds=0.1)
        os.kill(keeper.pid, signal.SIGCONT)
        [check] = doctor(root)
        assert check.name == "agent"
        assert f"two agents: the one that answers has the pid {by_hand.pid}" in check.finding
        subprocess.run(advised(check), check=True)
        by_hand.wait(30)
    # The parent waits longer after each start that came to nothing.
    eventually(lambda: doctor(root) == [], within_seconds=90, every_seconds=0.5)


def answers(root: StateRoot) -> int | None:
    """The pid of the agent that answers."""
    try:
        pid: int = call(root, "status")["pid"]
    except JourneymanError:
        return None
    return pid


def test_an_agent_of_the_same_name_is_found_and_healed(
    root: StateRoot, plane: RunningPlane, tmp_path: Path
) -> None:
    """Another machine that beats under our name is named; once it has stopped all is well again."""
    with agent(tmp_path, plane.url, plane.token_file, name="rival") as rival:
        eventually(lambda: rival.status()["lastHeartbeatAt"], within_seconds=30)
        [check] = doctor(root, node_name="rival")
        assert check.name == "node"
        assert "another one beats as FleetNode rival" in check.finding
        assert "Stop that one" in check.advice
        rival.stop()
    assert doctor(root, node_name="rival") == []


def test_a_clock_that_is_wrong_is_found(root: StateRoot, plane: RunningPlane) -> None:
    """A server whose clock is an hour ahead is told from one that is silent, and a right one is well."""
    with skewed_server(plane, 3600) as server:
        [check] = doctor(root, server=server.url)
        assert check.name == "clock"
        assert re.search(r"3(599|60[0-9]) s behind", check.finding)
        assert "time synchronisation" in check.advice
        server.skew_seconds = 0
        assert doctor(root, server=server.url) == []


def test_a_ca_that_is_not_known_is_found_and_healed(root: StateRoot, tmp_path: Path) -> None:
    """A certificate that nobody here trusts is named; the file of its CA, as advised, heals it."""
    with running_plane(tmp_path, tls=True) as plane, plane.client(verify=False) as client:
        client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("ill")).raise_for_status()
        way = {"server": plane.url, "token_file": plane.token_file}
        [check] = doctor(root, **way)
        assert check.name == "server"
        assert "is not trusted" in check.finding
        assert "ca_file" in check.advice
        assert doctor(root, **way, ca_file=plane.data_dir / "ca.crt") == []


def test_a_token_that_is_not_taken_is_found_and_healed(
    root: StateRoot, plane: RunningPlane, tmp_path: Path
) -> None:
    """A token that the server takes no longer is named with its file; the right one in that file heals it."""
    path = tmp_path / "token"
    path.write_text("of-yesterday")
    [check] = doctor(root, token_file=path)
    assert check.name == "server"
    assert "401" in check.finding
    assert "token_file" in check.advice
    path.write_text(plane.token)
    assert doctor(root, token_file=path) == []


def test_a_token_that_has_expired_is_found_and_healed(
    root: StateRoot, plane: RunningPlane, tmp_path: Path
) -> None:
    """One that was taken until its time was over is named with that time; a new one heals it."""
    hour, now, path = timedelta(hours=1), datetime.now(UTC), tmp_path / "token"
    path.write_text(made_token("fleet", "journeyman-ill", now - 3 * hour, now - hour))
    with skewed_server(plane, -2 * 3600) as server:
        assert [check.name for check in doctor(root, server=server.url, token_file=path)] == ["clock"]
        server.skew_seconds = 0
        [check] = doctor(root, server=server.url, token_file=path)
        assert check.name == "server"
        assert f"the token expired at {now - hour:%Y-%m-%d %H:%M} UTC" in check.finding
        assert advised(check) == shlex.split("kubectl create token journeyman-ill --namespace fleet")
        path.write_text(made_token("fleet", "journeyman-ill", now, now + hour))
        assert doctor(root, server=server.url, token_file=path) == []


def test_a_port_that_is_closed_is_found_and_healed(root: StateRoot, tmp_path: Path) -> None:
    """A plane that does not run is named with its address; once it runs, as advised, all is well."""
    with spawn_plane(tmp_path) as plane, plane.client() as client:
        client.post(f"{FOREMAN}/fleetnodes", json=fleet_node("ill")).raise_for_status()
        way = {"server": plane.url, "token_file": plane.data_dir / "admin.token"}
        plane.kill()
        [check] = doctor(root, **way)
        assert check.name == "server"
        assert plane.url in check.finding
        assert "Check that the control plane runs" in check.advice
        plane.start()
        assert doctor(root, **way) == []


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("server", "https://no-such-host.invalid", "no-such-host.invalid"),
        ("ca_file", "/etc/hostname", "holds no certificate"),
    ],
    ids=["dns", "ca"],
)
def test_a_wrong_setting_of_the_way_is_found_and_healed(
    root: StateRoot, setting: str, value: str, says: str
) -> None:
    """A name that no DNS knows, and a CA file that holds none, are named; without them all is well."""
    [check] = doctor(root, **{setting: value})
    assert check.name == "server"
    assert says in check.finding
    assert check.advice
    assert doctor(root) == []


@pytest.mark.parametrize(
    ("ill", "well", "reason"),
    [("size=4m", "size=2g", "InsufficientDisk"), ("noexec,size=2g", "exec", "NoExec")],
    ids=["full", "noexec"],
)
def test_a_file_system_that_takes_no_release_is_found_and_healed(
    tmp_path: Path, ill: str, well: str, reason: str
) -> None:
    """One without room, and one that runs no programs, are named before an update fails on them."""
    with mounted(tmp_path / "root", ill) as folder:
        root = StateRoot(folder)
        root.versions.mkdir()
        found = checks(root)["disk"]
        assert found.finding.startswith(f"{reason}: ")
        assert found.advice
        remount(folder, well)
        assert checks(root)["disk"].is_well


def test_it_is_said_what_starts_at_boot_and_why(root: StateRoot) -> None:
    """Where nothing can start it at boot, that is said with the reason, and with what would."""
    check = checks(root)["boot"]
    assert check.is_well
    assert check.finding == "nothing starts it at boot, as no service manager keeps it"
    assert str(root.parent_launcher) in check.advice


def test_it_is_said_why_there_are_no_updates(root: StateRoot) -> None:
    """Updates that are off are explained; the setting and `journeyman install`, as advised, turn them on."""
    check = checks(root)["updates"]
    assert check.finding.startswith("off: this host does not follow the AgentReleases")
    assert check.advice.endswith("and run `journeyman install`.")
    config = root.config_file.read_text()
    assert 'updates_source = "none"' in config
    root.config_file.write_text(config.replace('updates_source = "none"', 'updates_source = "agentrelease"'))
    install_again(root, expect="switched updates by AgentRelease on")
    assert checks(root)["updates"].finding.startswith("on: ")
    root.config_file.write_text(config)
    install_again(root, expect="switched updates by AgentRelease off")
    assert doctor(root) == []


def install_again(root: StateRoot, *, expect: str) -> None:
    settings = load_settings({"state_root": root.path}, {}).settings
    report = install(Request(settings, Target(root, "none")), print)
    assert expect in report.changes

"""The guard, run as a service manager runs it and, for its decisions, in a bottle."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman_updater import guard, parent
from journeyman_updater.contract import ExitCode
from journeyman_updater.contract.trial import NONCE_VARIABLE, SHA_VARIABLE
from journeyman_updater.core import attempts as rules
from journeyman_updater.core.launcher import render_launcher
from journeyman_updater.model.attempt import Attempt
from journeyman_updater.model.lines import seal, unseal
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME
from journeyman_updater.model.state import Spec
from tests.crash.scenarios import make_scenario
from tests.crash.world import World
from tests.support.kept_host import KeptHost

ONE_FILE = [Path(str(module.__file__)) for module in (guard, parent)]
PYENV = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
PYTHON_39 = sorted(PYENV.glob("versions/3.9.*/bin/python3.9"))


def world_on_trial(folder: Path, behaviour: str = "hang") -> World:
    """A host whose trial was set and started once."""
    scenario = make_scenario(folder, behaviour)
    world = scenario.begin()
    points = scenario.count_points()
    world.disk.cut_at = points.index("spawn agent") + 1
    with pytest.raises(BaseException, match="append"):
        world.update(scenario.wanted.request())
    world.disk.cut_at = None
    assert world.starts == ["0.1.0", "0.2.0"]
    return world


@pytest.mark.parametrize("path", ONE_FILE, ids=lambda path: path.name)
def test_it_is_one_file_of_old_python(path: Path) -> None:
    """Guard and parent parse as Python 3.9 and import nothing but the standard library."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert all(name.split(".")[0] in sys.stdlib_module_names for name in names)


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON_39, reason="cannot run here: no Python 3.9")
def test_it_runs_under_python_3_9(tmp_path: Path) -> None:
    """A real Python 3.9 runs the guard, which execs the active release with its nonce."""
    host = KeptHost(tmp_path)
    (host.root.run / "agent.lock").touch()
    shown = subprocess.run(
        [str(PYTHON_39[-1]), "-IS", str(ONE_FILE[0]), "--root", str(host.root.path), "--", "version"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(shown.stdout) == {"product": "journeyman", "version": "0.1.0"}


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON_39, reason="cannot run here: no Python 3.9")
def test_the_parent_starts_under_python_3_9(tmp_path: Path) -> None:
    """A real Python 3.9 understands the parent's command line."""
    command = [str(PYTHON_39[-1]), "-IS", str(ONE_FILE[1]), "--help"]
    assert b"--root" in subprocess.run(command, capture_output=True, check=True).stdout


@pytest.mark.slow
def test_nothing_to_run_is_said_in_plain_words(tmp_path: Path) -> None:
    """On an empty root the guard says so and exits 78, which no manager takes for a reason to hurry."""
    command = [sys.executable, "-IS", str(ONE_FILE[0]), "--root", str(tmp_path), "--", "run"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == guard.BAD_CONFIG
    assert "install a release again" in shown.stderr


@pytest.mark.slow
def test_the_launcher_falls_back_when_the_recorded_python_is_gone(tmp_path: Path) -> None:
    """The launcher skips a Python that vanished and takes the next; spaces and quotes in paths are fine."""
    program = tmp_path / "it's a guard.py"
    program.write_text("import sys; print(sys.flags.isolated, sys.argv[1:])")
    launcher = tmp_path / "launcher"
    launcher.write_text(render_launcher(str(program), recorded_python="/gone/python3"))
    shown = subprocess.run(["/bin/sh", launcher, "--root", "a b"], capture_output=True, text=True, check=True)
    assert shown.stdout == "1 ['--root', 'a b']\n"


def test_an_attempt_is_durable_before_the_start(tmp_path: Path) -> None:
    """The line of an attempt is on the platter before the release runs."""
    world = world_on_trial(tmp_path)
    lost = world.disk.after_cut(lambda ways: ways - 1)
    assert b'"start"' in lost.read(world.root.attempts_file)


def test_three_attempts_and_then_the_active_release(tmp_path: Path) -> None:
    """A trial that dies each time is started three times in a boot; the fourth start is the active one."""
    world = world_on_trial(tmp_path, "crash")
    world.wait(10)
    assert world.starts == ["0.1.0", "0.2.0", "0.2.0", "0.2.0", "0.1.0"]


def test_a_new_boot_gives_attempts_back(tmp_path: Path) -> None:
    """After a reboot the trial has its three attempts again."""
    world = world_on_trial(tmp_path, "crash")
    world.wait(10)
    world = world.reboot(world.disk.after_cut(lambda ways: 0))
    world.wait(10)
    assert world.starts == ["0.2.0", "0.2.0", "0.2.0", "0.1.0"]


def test_boots_do_not_go_on_for_ever(tmp_path: Path) -> None:
    """A trial that takes the host down each time is over after nine charged starts in all."""
    world = world_on_trial(tmp_path)
    for _ in range(12):
        world = world.reboot(world.disk.after_cut(lambda ways: 0))
    assert world.starts == ["0.1.0"]


@pytest.mark.parametrize("slept", [0, 60])
def test_a_sleep_gap_gives_the_attempt_back(tmp_path: Path, slept: int) -> None:
    """A hang across a sleep of the host costs nothing: its alarm may have rung at the wrong time."""
    world = world_on_trial(tmp_path)
    for _ in range(5):
        world.slept += slept * 10**9
        world.agent = None
        world.start()
    assert (world.starts[-1] == "0.2.0") is bool(slept)


def test_a_clean_stop_gives_the_attempt_back(tmp_path: Path) -> None:
    """A trial that was stopped in good order is not charged for it."""
    world = world_on_trial(tmp_path, "good")
    for _ in range(5):
        world.wait(1)
        world.stop_in_good_order()
        world.start()
    assert world.starts[-1] == "0.2.0"


def test_a_damaged_trial_is_never_started(tmp_path: Path) -> None:
    """A trial is hashed whole before each start; one changed byte, and the active release runs."""
    world = world_on_trial(tmp_path)
    trial = next(name for name in world.disk.names(world.root.versions) if name.startswith("0.2.0"))
    world.disk.write(world.root.versions / trial / "lib" / "filler", b"z" * 300)
    world.agent = None
    world.start()
    assert world.starts[-1] == "0.1.0"


def test_a_damaged_active_release_gives_way_to_the_previous(tmp_path: Path) -> None:
    """If a file of the active release is missing, the previous one runs rather than nothing."""
    world = make_scenario(tmp_path, "good").begin()
    active = next(name for name in world.disk.names(world.root.versions) if name.startswith("0.1.0"))
    world.disk.unlink(world.root.versions / active / "lib" / "filler")
    world.agent = None
    world.start()
    assert world.starts[-1] == "0.0.9"


def test_a_rejected_release_is_not_started_without_the_state_file(tmp_path: Path) -> None:
    """When state.json is gone, a release that the journal calls rejected is not run, however new it is."""
    scenario = make_scenario(tmp_path, "crash")
    world = scenario.begin()
    world.disk.cut_at = next(
        at for at, point in enumerate(scenario.count_points()) if point.startswith("unlink versions/0.2.0")
    )
    with pytest.raises(BaseException, match="unlink"):
        world.update(scenario.wanted.request())
    world.disk.cut_at = None
    world.disk.write(world.root.state_file, b"")
    world.agent = None
    world.start()
    assert world.starts[-1] == "0.1.0"
    assert world.agent is not None
    assert world.agent.nonce, "an agent without a nonce would not report"


def test_the_alarm_is_armed_only_on_trial(tmp_path: Path) -> None:
    """A trial is armed with the deadline of READY, and what is not on trial with no alarm at all."""
    world = world_on_trial(tmp_path)
    world.start()
    assert world.agent is not None
    assert world.agent.alarm == world.limits.health.ready
    world.agent = None
    document = json.loads(world.disk.read(world.root.state_file))
    document["status"]["trial"] = None
    world.disk.write(world.root.state_file, json.dumps(document).encode())
    world.start()
    assert world.agent is not None
    assert world.agent.alarm == 0


@pytest.mark.slow
def test_the_alarm_kills_even_where_it_was_blocked_and_ignored(tmp_path: Path) -> None:
    """A service manager that blocks or ignores SIGALRM does not keep a hanging release alive."""
    code = (
        "import signal, sys; sys.path.insert(0, sys.argv[1]); import guard\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n"
        "guard.Host().become('/bin/sleep', ['60'], {}, 0.1)\n"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(ONE_FILE[0].parent)]
    assert subprocess.run(command, check=False, timeout=20).returncode == -14


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [("start", "n", "b")],
        [("start", "n", "b"), ("refund", "n", "b"), ("start", "n", "a"), ("start", "other", "b")],
        [("start", "n", "b")] * 3,
        [("start", "n", f"b{boot}") for boot in range(9)],
    ],
)
def test_guard_and_updater_count_alike(lines: list[tuple[str, str, str]]) -> None:
    """The guard's own count of attempts agrees with the updater's."""
    assert (guard.ATTEMPTS, guard.ATTEMPTS_IN_ALL) == (rules.ATTEMPTS, rules.ATTEMPTS_IN_ALL)
    known = [Attempt(event, nonce, boot, 1) for event, nonce, boot in lines]
    mine = [{"event": event, "boot": boot} for event, nonce, boot in lines if nonce == "n"]
    assert guard._charged(mine) == rules.charged(known, "n")
    here = [line for line in mine if line["boot"] == "b"]
    assert guard._charged(here) == rules.charged(known, "n", "b")


def test_the_guard_speaks_the_contract() -> None:
    """The guard, which imports nothing of ours, uses the names and numbers of the contract."""
    text = ONE_FILE[0].read_text()
    for name in (NONCE_VARIABLE, SHA_VARIABLE, MANIFEST_NAME, VALIDITY_NAME):
        assert f'"{name}"' in text
    assert Spec().ready_seconds == guard.READY_SECONDS
    assert (guard.BAD_CONFIG, parent.BAD_CONFIG) == (ExitCode.BAD_CONFIG, ExitCode.BAD_CONFIG)
    assert parent.RESTART == ExitCode.RESTART


def test_guard_and_updater_write_the_same_lines() -> None:
    """Lines that one seals the other reads; a torn or zeroed tail is no line, and what follows it is."""
    body = {"event": "start", "nonce": "n", "pid": 3}
    assert guard.seal(body) == seal(body)
    torn = seal({"a": 1})[:-5] + seal(body) + b"\0" * 40 + seal({"b": 2}) + b'\n{"crc":1,"line":{}}\n'
    assert list(unseal(torn)) == list(guard.unseal(torn)) == [body, {"b": 2}]


@pytest.mark.slow
def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """state.json that is a link is refused; the guard then runs what the journal and the versions say."""
    host = KeptHost(tmp_path)
    host.root.state_file.rename(tmp_path / "elsewhere")
    host.root.state_file.symlink_to(tmp_path / "elsewhere")
    problems = guard.Guard(str(host.root.path), guard.Disk(), _Refusing()).start(["run"])
    assert problems[0].startswith("state.json cannot be used")
    assert problems[1].startswith("0.1.0-")


class _Refusing(guard.Host):
    def become(
        self, program: str, arguments: list[str], environment: dict[str, str], alarm_seconds: float
    ) -> None:
        raise OSError(8, "Exec format error")

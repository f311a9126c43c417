"""The fake launchctl is as strange as the real one: what was reported of that, asked for by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.contract import identity_of
from tests.support.launchd_bench import FakeLaunchdBench
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

TARGET = "system/dev.journeyman.agent"
NOT_FOUND = 'Could not find service "dev.journeyman.agent" in domain for system'
NO_DOMAIN = "Bootstrap failed: 125: Domain does not support specified action"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FakeLaunchdBench]:
    """A system daemon that is installed and not started."""
    made = FakeLaunchdBench(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def running(bench: FakeLaunchdBench) -> FakeLaunchdBench:
    """The same, with its agent running."""
    bench.start()
    bench.agent.wait_for_start(1)
    return bench


def ask(bench: FakeLaunchdBench, *words: str) -> tuple[int, str, str]:
    """Runs the executable, as a person would."""
    command = [str(bench.tool.folder / "launchctl"), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    return done.returncode, done.stdout, done.stderr.strip().splitlines()[-1] if done.stderr else ""


def test_load_of_a_loaded_label_says_0_and_does_nothing(running: FakeLaunchdBench) -> None:
    """The silent no-op: the old process runs on."""
    assert ask(running, "load", str(running.plist)) == (0, "", "dev.journeyman.agent: Already loaded")
    assert len(running.agent.starts()) == 1


def test_unload_w_leaves_an_override(running: FakeLaunchdBench) -> None:
    """After it every bootstrap fails, also after a boot."""
    ask(running, "unload", "-w", str(running.plist))
    eventually(lambda: running.launchctl.look().is_absent)
    running.launchd.reboot()
    assert ask(running, "bootstrap", "system", str(running.plist)) == (
        119, "", "Bootstrap failed: 119: Service is disabled",
    )  # fmt: skip


def test_load_can_fail_with_0(running: FakeLaunchdBench) -> None:
    """Its code says nothing; unload's does."""
    running.launchd.faults.load_fails = True
    assert ask(running, "load", str(running.plist))[0] == 0
    assert ask(running, "unload", str(running.plist))[0] == 5


def test_bootout_returns_before_the_job_is_gone(running: FakeLaunchdBench) -> None:
    """Meanwhile: print shows SIGTERMed and the pid, list says 0, kickstart 113, bootstrap 5, bootout 36."""
    running.take_down()
    running.agent.set("stubborn")
    running.write_plist(100)
    running.start()
    pid = running.agent.wait_for_start(2)
    assert ask(running, "bootout", TARGET)[0] == 0
    _, shown, _ = ask(running, "print", TARGET)
    assert "\tstate = SIGTERMed\n" in shown
    assert f"\tpid = {pid}\n" in shown
    assert f'"PID" = {pid};' in ask(running, "list", "dev.journeyman.agent")[1]
    assert ask(running, "kickstart", TARGET)[0] == 113
    assert ask(running, "bootstrap", "system", str(running.plist)) == (
        5, "", "Bootstrap failed: 5: Input/output error",
    )  # fmt: skip
    assert ask(running, "bootout", TARGET) == (36, "", "Boot-out failed: 36: Operation now in progress")


def test_exit_timeout_kills_what_does_not_stop(running: FakeLaunchdBench) -> None:
    """ExitTimeOut seconds after SIGTERM comes SIGKILL, and with it the end of the registration."""
    running.take_down()
    running.agent.set("stubborn")
    running.write_plist(5)
    running.start()
    pid = running.agent.wait_for_start(2)
    ask(running, "bootout", TARGET)
    eventually(lambda: ask(running, "print", TARGET)[0] == 113)
    assert identity_of(pid) is None


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("print", TARGET), 113, NOT_FOUND),
        (("kickstart", TARGET), 113, NOT_FOUND),
        (("kickstart", "-k", TARGET), 113, NOT_FOUND),
        (("kill", "SIGTERM", TARGET), 113, NOT_FOUND),
        (("bootout", TARGET), 3, "Boot-out failed: 3: No such process"),
        (("print", "gui/9/x"), 112, "Could not find domain for gui/9"),
        (("bootstrap", "gui/9", "/x.plist"), 125, NO_DOMAIN),
        (("bootstrap", "system", "/x.plist"), 5, "Bootstrap failed: 5: Input/output error"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_label_that_is_not_loaded(
    bench: FakeLaunchdBench, words: tuple[str, ...], code: int, text: str
) -> None:
    """Each verb has its own code for it."""
    assert ask(bench, *words) == (code, "", text)


def test_kickstart_of_a_running_job_is_a_no_op(running: FakeLaunchdBench) -> None:
    """Without -k the process stays, and the code is 0."""
    assert ask(running, "kickstart", TARGET)[0] == 0
    assert len(running.agent.starts()) == 1


def test_kickstart_k_kills_without_a_stop(running: FakeLaunchdBench) -> None:
    """SIGKILL: the agent gets no chance to stop in good order."""
    assert ask(running, "kickstart", "-k", TARGET)[0] == 0
    running.agent.wait_for_start(2)
    assert running.agent.stops() == []


def test_an_early_exit_waits_for_the_throttle(running: FakeLaunchdBench) -> None:
    """Counted from the last start: a job that ends at once is scheduled, and `runs` rises one by one."""
    running.agent.set("crash")
    ask(running, "kill", "SIGTERM", TARGET)

    def is_scheduled() -> bool:
        shown = ask(running, "print", TARGET)[1]
        return "\tstate = spawn scheduled\n" in shown and "\tlast exit code = 1\n" in shown

    eventually(is_scheduled)
    running.agent.set("crash", on=False)
    running.agent.wait_for_start(2)
    assert "\truns = 1\n" not in ask(running, "print", TARGET)[1]


def test_a_disabled_job_may_be_registered_and_never_run(bench: FakeLaunchdBench) -> None:
    """Registering says 0, and print says `not running` for ever."""
    bench.launchd.faults.disabled_says = 0
    ask(bench, "disable", TARGET)
    assert ask(bench, "bootstrap", "system", str(bench.plist))[0] == 0
    assert ask(bench, "kickstart", TARGET)[0] == 0
    _, shown, _ = ask(bench, "print", TARGET)
    assert "\tstate = not running\n" in shown
    assert "\truns = 0\n" in shown
    assert '"dev.journeyman.agent" => disabled' in ask(bench, "print-disabled", "system")[1]


def test_a_registered_job_may_wait_for_a_kickstart(bench: FakeLaunchdBench) -> None:
    """Loaded, never spawned: no pid, `runs = 0`, `(never exited)`, `speculative`."""
    bench.launchd.faults.never_spawns = True
    assert ask(bench, "bootstrap", "system", str(bench.plist))[0] == 0
    _, shown, _ = ask(bench, "print", TARGET)
    assert "\tpid = " not in shown
    assert "\truns = 0\n" in shown
    assert "\tlast exit code = (never exited)\n" in shown
    assert "\tpended nondemand spawn = speculative\n" in shown


def test_a_signal_without_a_process_says_3(bench: FakeLaunchdBench) -> None:
    """`kill` of a job that does not run is no success."""
    bench.launchd.faults.never_spawns = True
    bench.start()
    assert ask(bench, "kill", "SIGTERM", TARGET) == (3, "", "No process to signal.")


def test_a_job_of_another_session_is_refused(bench: FakeLaunchdBench, tmp_path: Path) -> None:
    """A list for the desktop cannot be registered in the domain of logins without one."""
    path = tmp_path / "gui.plist"
    path.write_bytes(
        (Path(__file__).resolve().parents[3] / "launchd/gui/dev.journeyman.agent.plist").read_bytes()
    )
    assert ask(bench, "bootstrap", "user/501", str(path))[0] == 134

"""The parent, on its own: one a state root, and the updater at its time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater import parent
from journeyman_updater.contract import StateRoot
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
PROGRAM = str(parent.__file__)


class Kept:
    """A parent whose guard and updater are scripts that write down that they ran.

    Args:
        folder: for everything.
        guard: what the guard's script does after that.
        updater: what the updater's script does after that.
        options: further options of the parent.
    """

    def __init__(
        self, folder: Path, guard: str, updater: str = "exit 0", options: tuple[str, ...] = ()
    ) -> None:
        self.root = StateRoot(folder / "root")
        self.log = folder / "log"
        scripts = {}
        for name, act in (("guard", guard), ("updater", updater)):
            script = folder / name
            script.write_text(f'#!/bin/sh\necho {name} >> "{self.log}"\n{act}\n')
            script.chmod(0o755)
            scripts[name] = str(script)
        self.command = [
            sys.executable, "-IS", PROGRAM, "--root", str(self.root.path), "--guard", scripts["guard"],
            "--updater", scripts["updater"], "--every", "3600", *options, "--", "run",
        ]  # fmt: skip
        self.process = subprocess.Popen(self.command)

    def runs(self, name: str) -> int:
        return self.log.read_text().split("\n").count(name) if self.log.exists() else 0

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=20)


@pytest.fixture
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A parent that is stopped in the end."""
    found = Kept(tmp_path, request.param)
    yield found
    found.stop()


@pytest.mark.parametrize("kept", ["exec sleep 600"], indirect=True)
def test_the_updater_runs_at_the_start_and_when_it_is_woken(kept: Kept) -> None:
    """The updater runs first thing, and again as soon as the wake-up file is touched."""
    eventually(lambda: kept.runs("updater") == 1 and kept.runs("guard") == 1)
    kept.root.wake_up_file.touch()
    eventually(lambda: kept.runs("updater") == 2)
    assert kept.runs("guard") == 1


@pytest.mark.parametrize("kept", ["exec sleep 600"], indirect=True)
def test_a_second_parent_is_refused(kept: Kept) -> None:
    """Two parents on one root would start two agents: the second says so and exits 73."""
    eventually(kept.root.guard_file.exists)
    second = subprocess.run(kept.command, capture_output=True, text=True, check=False, timeout=20)
    assert second.returncode == 73
    assert "another parent" in second.stderr


@pytest.mark.parametrize("kept", ["sleep 1.1; exit 75"], indirect=True)
def test_a_restart_that_was_asked_for_is_not_delayed(kept: Kept) -> None:
    """Exit code 75 means: start again now, after 1.1, 2.2 and 3.3 s rather than with pauses between."""
    eventually(lambda: kept.runs("guard") >= 4, within_seconds=5)


@pytest.mark.parametrize("kept", ["exit 75"], indirect=True)
def test_a_restart_loop_is_slowed_down(kept: Kept) -> None:
    """What ends at once is not started again at once, whatever its exit code."""
    eventually(lambda: kept.runs("guard") == 2)
    kept.root.wake_up_file.touch()
    eventually(lambda: kept.runs("updater") == 2)
    assert kept.runs("guard") <= 3


@pytest.mark.parametrize("kept", ["exit 78"], indirect=True)
def test_a_wrong_setting_is_not_hurried(kept: Kept) -> None:
    """After exit code 78 nothing is started, until somebody who knows better asks by SIGUSR1."""
    eventually(lambda: kept.runs("guard") == 1)
    kept.root.wake_up_file.touch()
    eventually(lambda: kept.runs("updater") == 2)
    assert kept.runs("guard") == 1
    kept.process.send_signal(signal.SIGUSR1)
    eventually(lambda: kept.runs("guard") == 2)


@pytest.mark.parametrize("kept", ["exec sleep 600"], indirect=True)
def test_sigterm_ends_agent_and_parent(kept: Kept) -> None:
    """The parent passes SIGTERM on and ends when its agent has."""
    eventually(lambda: kept.runs("guard") == 1)
    assert kept.stop() == 0


def test_an_updater_that_never_ends_is_killed(tmp_path: Path) -> None:
    """An updater that hangs does not keep the next one away for ever, and the agent is not touched."""
    kept = Kept(tmp_path, "exec sleep 600", "exec sleep 600", ("--longest-update", "0.5"))
    try:
        eventually(lambda: kept.runs("updater") == 1)
        kept.root.wake_up_file.touch()
        eventually(lambda: kept.runs("updater") == 2)
        assert kept.runs("guard") == 1
    finally:
        kept.stop()


def test_an_agent_that_wakes_the_updater_is_not_waited_for(tmp_path: Path) -> None:
    """The parent looks when the agent has touched the file, be its own next look an hour away."""
    program = (
        "import sys; from pathlib import Path; from journeyman.adapters.updater_waker import UpdaterWaker; "
        "from journeyman_updater.contract import StateRoot; import time; "
        "waker = UpdaterWaker(StateRoot(Path(sys.argv[1])), {}); "
        "(waker.heard('a request'), time.sleep(600)) if sys.stdin.read() else None"
    )
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    guard = f'PYTHONPATH={":".join(sys.path)} exec {sys.executable} -c "{program}" "$2" < "{fifo}"'
    kept = Kept(tmp_path, guard, options=("--look", "3600"))
    try:
        eventually(lambda: kept.runs("updater") == 1)
        # Once it reads, the parent has written down which process it keeps.
        fifo.write_text("go")
        eventually(lambda: kept.runs("updater") == 2)
    finally:
        kept.stop()

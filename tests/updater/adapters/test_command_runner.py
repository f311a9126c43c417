"""Tools of the host are run with a deadline that nothing outlives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from journeyman_updater.adapters.command_runner import NOT_FOUND, TIMED_OUT, SubprocessCommandRunner
from journeyman_updater.contract import identity_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


def test_tells_how_a_program_ended() -> None:
    """Code and both streams, without what it was not asked for."""
    done = SubprocessCommandRunner().run(
        "/bin/sh", "-c", "echo out; echo err >&2; exit 7", timeout_seconds=10
    )
    assert (done.code, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_speaks_english_and_adds_to_the_environment() -> None:
    """Texts that are read must not depend on the host's language."""
    runner = SubprocessCommandRunner({"A": "b", "LC_ALL": "de_DE.UTF-8"})
    assert runner.run("/bin/sh", "-c", 'echo "$A $LC_ALL"', timeout_seconds=10).stdout == "b C\n"


def test_a_missing_program_is_a_result() -> None:
    """No exception: 127, as a shell says it."""
    done = SubprocessCommandRunner().run("/nowhere/tool", timeout_seconds=10)
    assert done.code == NOT_FOUND
    assert done.stderr == "/nowhere/tool: No such file or directory"


def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    """A child that holds the pipes open is killed with its parent."""
    note = tmp_path / "pid"
    script = f'sleep 600 & echo $! > "{note}"; wait'
    began = time.monotonic()
    done = SubprocessCommandRunner().run("/bin/sh", "-c", script, timeout_seconds=0.5)
    assert done.code == TIMED_OUT
    assert time.monotonic() - began < 10
    eventually(lambda: identity_of(int(note.read_text())) is None)


def test_nothing_comes_from_standard_input() -> None:
    """A tool that asks a question gets its end, not our terminal."""
    assert SubprocessCommandRunner().run("/bin/cat", timeout_seconds=10).code == 0

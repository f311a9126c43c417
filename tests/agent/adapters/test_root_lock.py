"""One agent for each state root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman.adapters.root_lock import root_lock
from journeyman.errors import AlreadyRunningError, HostError
from journeyman_updater.contract import StateRoot

HOLDER = """
import sys
from pathlib import Path
from journeyman.adapters.root_lock import root_lock
from journeyman_updater.contract import StateRoot
with root_lock(StateRoot(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_names_its_holder_and_can_be_taken_again(tmp_path: Path) -> None:
    """While it is held the file holds our pid; afterwards it is free."""
    root = StateRoot(tmp_path / "with space")
    for _ in range(2):
        with root_lock(root):
            assert root.lock_file.read_text() == f"{os.getpid()}\n"


@pytest.mark.slow
def test_a_second_agent_is_told_who_runs_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    """Exit code 73 with the pid; the kernel frees the lock of a process that was killed."""
    root = StateRoot(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(AlreadyRunningError) as caught, root_lock(root):
            pass
        assert caught.value.exit_code == 73
        assert f"pid {holder.pid}" in caught.value.message
        assert str(tmp_path) in caught.value.message
        holder.kill()
    with root_lock(root):
        assert root.lock_file.read_text() == f"{os.getpid()}\n"


def test_the_lock_is_not_inherited(tmp_path: Path) -> None:
    """A worker that outlives the agent must not keep the next agent out."""
    root = StateRoot(tmp_path)
    listing = Path("/proc/self/fd")
    if not listing.is_dir():
        pytest.skip("cannot run here: no /proc lists the open files")
    with root_lock(root):
        (held,) = [link for link in listing.iterdir() if link.exists() and link.samefile(root.lock_file)]
        assert not os.get_inheritable(int(held.name))


def test_a_root_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    """A file in the way is a problem of the host, with what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot be used") as caught, root_lock(StateRoot(tmp_path / "file")):
        pass
    assert "--state-root" in caught.value.advice

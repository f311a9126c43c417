"""The smallest agent that a service manager can keep: it says when it starts, and stops as it is told to.

A manager's bench starts `program` with arguments that it likes; the agent keeps its notes in one folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from journeyman_updater.contract import identity_of
from tests.support.waiting import eventually

PROGRAM = """#!{python} -IS
import os, signal, subprocess, sys, time
os.chdir({folder!r})

def note(word):
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(log, b"%s %d\\n" % (word, os.getpid()))
    os.close(log)

def stop(*_):
    if not os.path.exists("stubborn"):
        note(b"stopped")
        sys.exit(75)

signal.signal(signal.SIGTERM, stop)
if os.path.exists("crash"):
    sys.exit(1)
if os.path.exists("worker") and not os.path.exists("worker-pid"):
    worker = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    with open("worker-pid", "w") as file:
        file.write(str(worker.pid))
note(b"started")
while True:
    time.sleep(600)
"""


class TinyAgent:
    """The agent's program and its notes.

    Args:
        folder: for both.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "notes of the agent"
        self._folder.mkdir()
        self.program = self._folder / "agent"
        self.program.write_text(PROGRAM.format(python=sys.executable, folder=str(self._folder)))
        self.program.chmod(0o755)

    def starts(self) -> list[int]:
        """The pid of each start, in order."""
        return [pid for word, pid in self._log() if word == "started"]

    def stops(self) -> list[int]:
        """The pid of each agent that stopped in good order."""
        return [pid for word, pid in self._log() if word == "stopped"]

    def pid(self) -> int | None:
        """The agent that started last, if it still runs."""
        starts = self.starts()
        return starts[-1] if starts and identity_of(starts[-1]) else None

    def wait_for_start(self, number: int) -> int:
        """Returns once that many have started and the last one runs; its pid."""
        eventually(lambda: len(self.starts()) >= number and self.pid(), within_seconds=20)
        return self.starts()[-1]

    def set(self, behaviour: str, *, on: bool = True) -> None:
        """`stubborn` ignores SIGTERM; from its next start on `crash` ends at once, `worker` starts one."""
        path = self._folder / behaviour
        if on:
            path.touch()
        else:
            path.unlink(missing_ok=True)

    def worker_pid(self) -> int:
        """The worker, which leads a session of its own."""
        eventually(lambda: (self._folder / "worker-pid").exists() and self._read_worker())
        return int(self._read_worker())

    def _read_worker(self) -> str:
        return (self._folder / "worker-pid").read_text()

    def _log(self) -> list[tuple[str, int]]:
        try:
            lines = (self._folder / "log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [(line.split()[0], int(line.split()[1])) for line in lines]

"""A worker that is a shell with job control, which can see that what it runs was stopped.

`python -m tests.support.job_control FOLDER` lets one stand still and go on; as its exit code shows, unseen.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from journeyman.adapters.posix_workers import PosixWorkers
from journeyman_updater.contract import WorkerFolder, WorkerSpec
from journeyman_updater.contract.cgroup import MOUNT
from tests.support.waiting import eventually

# Waits for a word, and then with job control for a command, which waits for one, too.
SHELL = 'read go < "$FIFO"; set -m; sh -c \'echo began; read go < "$FIFO"\'; echo "went on with $?"'


class Desk:
    """One worker that runs the shell.

    Args:
        folder: for everything.
        mount: where version 2 of cgroups is mounted.
    """

    def __init__(self, folder: Path, mount: Path = Path(MOUNT)) -> None:
        self.workers = PosixWorkers(folder / "workers", poll_seconds=0.02, cgroups=str(mount))
        self._mount, self._fifo, self._folder = mount, folder / "fifo", WorkerFolder(folder / "workers" / "a")
        os.mkfifo(self._fifo)
        spec = WorkerSpec("test", ("/bin/bash", "-c", SHELL), {"FIFO": str(self._fifo), "PATH": os.defpath})
        self.record = self.workers.start("a", spec)

    def say_go(self) -> None:
        self._fifo.write_text("go\n")

    def said(self) -> list[str]:
        return self._folder.stdout.read_text().splitlines()

    def begin(self) -> None:
        self.say_go()
        eventually(lambda: self.said() == ["began"])

    def stand_still(self) -> None:
        """Returns once the kernel says that all of it is frozen."""
        self.workers.signal(self.record, signal.SIGSTOP)
        eventually(self._is_frozen)

    def go_on_to_the_end(self) -> None:
        self.workers.signal(self.record, signal.SIGCONT)
        self.say_go()
        eventually(lambda: len(self.said()) > 1)

    def end(self) -> int | None:
        """Asks it to end, and returns the signal by which it did."""
        ended = asyncio.run(asyncio.wait_for(self.workers.stop(self.record, grace_seconds=30), 40))
        assert ended is not None
        return ended.signal

    def _is_frozen(self) -> bool:
        path = Path(f"/proc/{self.record.worker.pid}/cgroup").read_text().rpartition("0::/")[2].strip()
        return "frozen 1" in (self._mount / path / "cgroup.events").read_text()


def main(folder: Path) -> int:
    """0 if it has not seen it."""
    desk = Desk(folder)
    try:
        desk.begin()
        desk.stand_still()
        desk.go_on_to_the_end()
        return 0 if desk.said() == ["began", "went on with 0"] else 1
    finally:
        desk.end()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

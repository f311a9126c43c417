"""Processes that outlive the agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from journeyman_updater.contract import WorkerExit, WorkerRecord, WorkerSpec


@dataclass(frozen=True)
class Usage:
    """What a worker uses: resident memory, and what it has written to disks where the host can tell."""

    ram_bytes: int = 0
    written_bytes: int = 0


class Workers(Protocol):
    """The processes that outlive an agent: each runs under a shim of its own.

    A worker is known by its folder `workers/<id>/` alone, so the next agent finds what this one started.
    """

    def start(
        self, worker_id: str, spec: WorkerSpec, files: Mapping[str, bytes] | None = None
    ) -> WorkerRecord:
        """Starts the worker and returns once its record is durable.

        `files` are written to the worker's `files/` folder first, 0600 each: the place for requests and
        keys.  Raises WorkerError if a worker of that id already exists or the program cannot be
        started; then nothing of it is left.
        """
        ...

    def known(self) -> list[WorkerRecord]:
        """The records of all workers on disk, running or not, oldest first.

        Cleans up what a start that was cut off has left, so only the agent that owns the state root may
        ask.  Raises WorkerError if a record cannot be read now.
        """
        ...

    def running(self, record: WorkerRecord) -> bool:
        """Whether that very shim still runs: same boot, pid and start time."""
        ...

    def exit_of(self, record: WorkerRecord) -> WorkerExit | None:
        """How the worker ended; None while it runs, and where nobody knows (the shim was killed)."""
        ...

    async def wait(self, record: WorkerRecord) -> WorkerExit | None:
        """Returns as soon as the shim has ended; what `exit_of` then says."""
        ...

    async def stop(self, record: WorkerRecord, *, grace_seconds: float) -> WorkerExit | None:
        """Asks the worker to end (SIGTERM) and kills its whole session after the grace.

        One that stands still is let go on first, to hear it.  Idempotent.  Returns what `exit_of` then says.
        """
        ...

    def read_file(self, record: WorkerRecord, name: str) -> bytes | None:
        """The content of one file of the worker's `files/` folder, or None if there is none."""
        ...

    def path_of(self, record: WorkerRecord, name: str) -> Path:
        """The path of one file of the worker's `files/` folder, for another worker to read."""
        ...

    def write_file(self, record: WorkerRecord, name: str, content: bytes) -> None:
        """Puts a file into the worker's `files/` folder durably.  Raises WorkerError if that fails."""
        ...

    def last_words(self, record: WorkerRecord) -> str:
        """The last few kilobytes of its stderr; empty where there are none."""
        ...

    def log(self, record: WorkerRecord) -> str:
        """Its stderr since its log was cut last: some megabytes at most; empty where there is none."""
        ...

    def signal(self, record: WorkerRecord, number: int) -> None:
        """Sends a signal to all of the worker's session, if it runs; a SIGSTOP it need not be able to see."""
        ...

    def usage(self, record: WorkerRecord) -> Usage:
        """What all processes of the worker's session use now; zero if it has ended."""
        ...

    def remove(self, record: WorkerRecord) -> None:
        """Deletes the folder of a worker that has ended.  Raises WorkerError if it still runs."""
        ...

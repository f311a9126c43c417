"""Ends all workers of a state root, for an uninstall: no service manager does it, on purpose."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

from journeyman_updater.contract import (
    ProcessIdentity,
    WorkerFolder,
    WorkerRecord,
    kill_session,
    signal_session,
)
from journeyman_updater.contract.cgroup import set_frozen
from journeyman_updater.ports import Clock

POLL_SECONDS = 0.1


def end_workers(workers: Path, clock: Clock, *, grace_seconds: float) -> list[str]:
    """Asks each worker with SIGTERM, through its shim, and kills what has not ended in time.

    The agent must have stopped, or it starts them again.

    Args:
        workers: `StateRoot.workers`.  It is done as the user who owns it: the records in it are written by
            the agent, and root must not signal whatever process they name.
        clock: for the wait.
        grace_seconds: between SIGTERM and SIGKILL.

    Returns:
        The names of the workers that ran.

    Raises:
        OSError: the folder cannot be read.
    """
    if not workers.is_dir():
        return []
    owner = workers.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        return _end(workers, clock, grace_seconds)
    return _as_user(owner, lambda: _end(workers, clock, grace_seconds))


def _end(workers: Path, clock: Clock, grace_seconds: float) -> list[str]:
    alive = [record for record in _records(workers) if record.shim.is_running() or record.worker.is_running()]
    for record in alive:
        _signal(record.shim, signal.SIGTERM)
        # One that an agent has left standing still must hear it.
        signal_session(record.worker, signal.SIGCONT)
        set_frozen(record.shim.pid, record.worker_id, frozen=False)
    for _ in range(int(grace_seconds / POLL_SECONDS)):
        if not any(record.worker.is_running() for record in alive):
            break
        clock.wait(POLL_SECONDS)
    for record in alive:
        # The shim sees its worker end, writes down how, and ends by itself.
        kill_session(record.worker)
    return [record.worker_id for record in alive]


def _records(workers: Path) -> Iterator[WorkerRecord]:
    for path in sorted(workers.iterdir()):
        # A folder without a readable record is one in which no worker has passed its gate.
        with contextlib.suppress(OSError, ValueError):
            yield WorkerRecord.from_json(WorkerFolder(path).record.read_bytes())


def _signal(process: ProcessIdentity, number: int) -> None:
    with contextlib.suppress(OSError):
        if process.is_running():
            os.kill(process.pid, number)


def _as_user(owner: os.stat_result, work: Callable[[], list[str]]) -> list[str]:
    """Does it in a child that has given root up for good: a real uid of 0 may signal root's processes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(owner.st_gid)
            os.setuid(owner.st_uid)
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise OSError(f"the workers of the user with the id {owner.st_uid} could not be ended")
    names: list[str] = json.loads(answer)
    return names

"""One agent for each state root: an flock that the kernel gives back however the agent ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from journeyman.errors import AlreadyRunningError, HostError
from journeyman_updater.contract import StateRoot


@contextmanager
def root_lock(root: StateRoot, *, holder: str = "agent") -> Iterator[None]:
    """Holds the state root for one kind of holder until the block is left.

    The lock file stays, as removing it would let a third agent lock a file that the second one, which
    still has the old one open, does not see.  Its descriptor is not inherited by workers.

    Args:
        root: the state root.
        holder: what may be there once: the agent, or the fleet of one around it.

    Raises:
        AlreadyRunningError: another process holds it; the message names its pid.
        HostError: the folder or the file cannot be made.
    """
    try:
        for folder in (root.run, root.agent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = root.lock_file.with_name(f"{holder}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(
            f"the state root {root.path} cannot be used: {error.strerror}",
            "Choose another one with --state-root, or mend its permissions.",
        ) from error
    try:
        _lock(descriptor, root, holder)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, root: StateRoot, holder: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        # The holder may be between lock and write; then the file names nobody yet.
        pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
        raise AlreadyRunningError(
            f"`{holder}` (pid {pid}) already runs on the state root {root.path}",
            "Stop it first, or give this one a root of its own with --state-root.",
        ) from error
    except OSError as error:
        raise HostError(
            f"the state root {root.path} cannot be locked: {error.strerror}",
            "Choose a folder on a local file system.",
        ) from error

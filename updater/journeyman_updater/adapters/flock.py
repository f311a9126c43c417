"""The one lock of all mutations, held by flock: the kernel gives it back, however its holder ends.

The file names its holder meanwhile, so that people learn who it is, and an uninstall can end it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from journeyman_updater.contract import ProcessIdentity, identity_of
from journeyman_updater.errors import HostError, Reason
from journeyman_updater.ports import Clock

_POLL_SECONDS = 0.2


class FlockLocks:
    """Implements the port Locks."""

    @contextmanager
    def hold(self, path: Path) -> Iterator[None]:
        """Holds the lock; see the port.

        Raises:
            HostError: SelfUpdateUnavailable; another updater is at work.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                found = holder(path)
                raise HostError(
                    Reason.SELF_UPDATE_UNAVAILABLE,
                    f"another run of the updater is at work{f', as process {found.pid}' if found else ''}",
                    "Wait for it: `journeyman update status` shows how far it is.",
                ) from error
            _name_holder(descriptor)
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


def _name_holder(descriptor: int) -> None:
    me = identity_of(os.getpid())
    os.ftruncate(descriptor, 0)
    if me is not None:
        os.pwrite(descriptor, json.dumps(asdict(me)).encode(), 0)


def holder(path: Path) -> ProcessIdentity | None:
    """Who holds the lock, or None if nobody does or it cannot be told.

    Args:
        path: of the lock.
    """
    try:
        named = ProcessIdentity(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
    return named if named.is_running() else None


def end_holder(path: Path) -> None:
    """Lets whoever else holds the lock end; what it has begun is recovered by whoever holds it next.

    Args:
        path: of the lock, in a folder that only its user can write, as a process is ended by what it says.
    """
    other = holder(path)
    if other is not None and other.pid != os.getpid():
        with contextlib.suppress(ProcessLookupError):
            os.kill(other.pid, signal.SIGTERM)


@contextmanager
def hold_in_time(path: Path, clock: Clock, seconds: float) -> Iterator[None]:
    """Holds the lock as soon as nobody else does: an updater that a parent has started goes on for a while.

    Args:
        path: of the lock.
        clock: for the wait.
        seconds: how long to wait.

    Raises:
        HostError: as `FlockLocks.hold`, at the end of the wait.
    """
    with contextlib.ExitStack() as held:
        for _ in range(int(seconds / _POLL_SECONDS)):
            with contextlib.suppress(HostError):
                held.enter_context(FlockLocks().hold(path))
                break
            clock.wait(_POLL_SECONDS)
        else:
            held.enter_context(FlockLocks().hold(path))
        yield

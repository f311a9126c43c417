"""Notices the end of a process that is not our child, at once and without polling where the host can.

Linux tells by a pidfd, macOS by a kqueue.  Where neither works (PRoot translates no pidfd_open, old
kernels have none) the process is looked at in intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import Iterator

from journeyman_updater.contract import ProcessIdentity


async def ended(process: ProcessIdentity, *, poll_seconds: float) -> None:
    """Returns as soon as that very process has ended; at once if it already has.  Cancellable.

    Args:
        process: any process of this host, our child or not.
        poll_seconds: the interval of the fallback.
    """
    try:
        with _end_descriptor(process.pid) as descriptor:
            # The number may have been given away before the descriptor was opened, so ask only now.
            if process.is_running():
                await _readable(descriptor)
    except ProcessLookupError:
        return
    except OSError:
        await ended_by_polling(process, poll_seconds=poll_seconds)


async def ended_by_polling(process: ProcessIdentity, *, poll_seconds: float) -> None:
    """The same by looking every `poll_seconds`; works on every host."""
    while process.is_running():  # noqa: ASYNC110  Nothing here could set an event.
        await asyncio.sleep(poll_seconds)


@contextlib.contextmanager
def _end_descriptor(pid: int) -> Iterator[int]:
    """Yields a descriptor that becomes readable when the process ends.

    Raises:
        ProcessLookupError: there is no such process.
        OSError: this host has no such descriptors.
    """
    if sys.platform == "darwin":
        with contextlib.closing(select.kqueue()) as queue:
            flags = select.KQ_EV_ADD | select.KQ_EV_ONESHOT
            event = select.kevent(pid, select.KQ_FILTER_PROC, flags, select.KQ_NOTE_EXIT)
            queue.control([event], 0)
            yield queue.fileno()
    else:
        descriptor = os.pidfd_open(pid)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)

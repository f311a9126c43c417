"""Noticing the end of a process that is not our child."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from journeyman.adapters import process_watch
from journeyman_updater.contract import ProcessIdentity, identity_of

pytestmark = pytest.mark.slow

Watch = Callable[[ProcessIdentity], Awaitable[None]]


async def by_event(process: ProcessIdentity) -> None:
    # An interval of an hour: only the event can end this within the deadline.
    await process_watch.ended(process, poll_seconds=3600)


async def by_polling(process: ProcessIdentity) -> None:
    await process_watch.ended_by_polling(process, poll_seconds=0.01)


@pytest.fixture(params=[by_event, by_polling])
def watch(request: pytest.FixtureRequest) -> Watch:
    chosen: Watch = request.param
    return chosen


@pytest.fixture
def process() -> Iterator[ProcessIdentity]:
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    assert identity is not None
    with child:
        yield identity
        child.kill()


def test_the_end_is_noticed(watch: Watch, process: ProcessIdentity) -> None:
    """The watch returns when the process ends, even while it is still a zombie."""

    async def scenario() -> None:
        watching = asyncio.ensure_future(watch(process))
        await asyncio.sleep(0)
        assert not watching.done()
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.wait_for(watching, 10)

    asyncio.run(scenario())


def test_a_process_of_another_life_has_ended(watch: Watch, process: ProcessIdentity) -> None:
    """A reused pid or another boot is no reason to wait."""
    for other in (
        ProcessIdentity(process.boot_id, process.pid, "1"),
        ProcessIdentity("another-boot", process.pid, process.start_time),
        ProcessIdentity(process.boot_id, 2**22 + 1, "1"),
    ):
        asyncio.run(asyncio.wait_for(watch(other), 10))


def test_a_cancelled_watch_leaves_no_descriptor(process: ProcessIdentity) -> None:
    """Cancelling closes what the watch had opened."""

    async def scenario() -> None:
        before = _open_descriptors()
        watching = asyncio.ensure_future(by_event(process))
        await asyncio.sleep(0)
        assert _open_descriptors() > before
        watching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await watching
        assert _open_descriptors() == before

    asyncio.run(scenario())


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())

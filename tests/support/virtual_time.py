"""An event loop whose time passes only when nobody has anything to do, with real sockets.

What is sent over loopback within one process has arrived when the sender goes on, so an idle loop has
nothing to wait for but its next timer: it goes there at once.  Half an hour passes in a second, and a slow
machine makes no time-out come early.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import tempfile
from collections.abc import Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: tells how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_seconds = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(None)
        self.passed_seconds += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop; its time begins at zero."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed_seconds


class VirtualClock:
    """The `Clock` ports of agent and plane on the time of the loop that runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.time())

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def run_virtually(test: Coroutine[Any, Any, None], *, within_seconds: float) -> None:
    """Runs a test on a loop of its own.

    Args:
        test: it may use sockets of this process, and no threads.
        within_seconds: of virtual time, after which it has failed.
    """

    async def bounded() -> None:
        async with asyncio.timeout(within_seconds):
            await test

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(bounded())


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one: what no power cut can test need not wait for a disk.

    Hours of virtual time write tens of thousands of log lines, so there are none of those either.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    memory = Path("/dev/shm")
    try:
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
            yield Path(folder)
    finally:
        structlog.reset_defaults()

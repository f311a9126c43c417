"""Coroutines, of any event loop, that wait for a change of a resource."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

Resource = tuple[str, str]


class Waiter:
    """One coroutine that waits; it may be woken from any thread."""

    def __init__(self, resource: Resource | None) -> None:
        self.resource = resource
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> None:
        # A loop that has been closed has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._woken.set)

    async def wait(self, timeout_seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._woken.wait()


class Waiters:
    """All who wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiters: set[Waiter] = set()

    @contextmanager
    def waiter(self, resource: Resource | None) -> Iterator[Waiter]:
        """Registers a waiter for changes of a resource, or of any; it is forgotten at the end."""
        waiter = Waiter(resource)
        with self._lock:
            self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def wake(self, resource: Resource) -> None:
        """Wakes those who wait for this resource, and those who wait for any."""
        with self._lock:
            due = [each for each in self._waiters if each.resource in {None, resource}]
        for waiter in due:
            waiter.wake()

    def wake_all(self) -> None:
        """Wakes everyone."""
        with self._lock:
            due = list(self._waiters)
        for waiter in due:
            waiter.wake()

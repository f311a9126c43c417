"""Time that moves only when a test says so: the `Clock` port for loops on a fake day."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
# How often the event loop is turned for everybody to get as far as they can without time passing.
_TURNS = 50


class FakeClock:
    """A wall clock and a monotonic clock; sleepers wake in the order of their deadlines.

    Args:
        start: what the wall clock shows first.
    """

    def __init__(self, start: datetime = START) -> None:
        self._wall = start
        self._monotonic = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> datetime:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._monotonic + seconds, next(self._order), woken))
        await woken

    def set_wall(self, moment: datetime) -> None:
        """Steps the wall clock, as NTP or a user does; the monotonic clock and sleepers do not notice."""
        self._wall = moment

    def move(self, seconds: float) -> None:
        """Moves both clocks, and wakes nobody: for what only reads the time."""
        self._wall += timedelta(seconds=seconds)
        self._monotonic += seconds

    async def settle(self) -> None:
        """Lets everybody get as far as they can without time passing."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def run_for(self, seconds: float) -> None:
        """Lets that much time pass, stopping at each deadline on the way."""
        end = self._monotonic + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            self.move(max(due - self._monotonic, 0.0))
            if not woken.done():
                woken.set_result(None)
            await self.settle()
        self.move(end - self._monotonic)

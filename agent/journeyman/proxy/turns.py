"""Who may ask a model server now: as many as it has slots, the others in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque


class QueueFullError(Exception):
    """So many wait already that another one is sent away."""


class Turns:
    """The turns at one model.

    Whoever leaves the queue, as its client has gone, was never seen by the server.

    Args:
        limit: how many may wait.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self.running = 0

    @property
    def waiting(self) -> int:
        """How many wait for a turn."""
        return len(self._queue)

    def set_slots(self, slots: int) -> None:
        """How many may run at a time, from now on; 0 is no limit."""
        self._slots = slots
        self._hand_on()

    async def take(self) -> None:
        """Returns when it is the caller's turn; `give` ends that.

        Raises:
            QueueFullError: the queue is full.
        """
        if not self._queue and self._is_free():
            self.running += 1
            return
        if len(self._queue) >= self._limit:
            raise QueueFullError
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            else:
                self._queue.remove(turn)
            raise

    def give(self) -> None:
        """Ends a turn; the next one begins."""
        self.running -= 1
        self._hand_on()

    def _is_free(self) -> bool:
        return self._slots == 0 or self.running < self._slots

    def _hand_on(self) -> None:
        while self._queue and self._is_free():
            turn = self._queue.popleft()
            if not turn.cancelled():
                self.running += 1
                turn.set_result(None)

"""What the proxy passes on while memory is short, for the ladder, which cannot wait for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.serving.neighbours import Neighbours


class SeenTraffic:
    """The last answer of the proxy, asked anew with each verdict that finds the memory gate not open.

    Args:
        neighbours: the memory gate, and who asks the proxy; that answer is bounded there.
        has_proxy: whether there is one at all.
    """

    def __init__(self, neighbours: Neighbours, *, has_proxy: bool) -> None:
        self._neighbours = neighbours
        self._has_proxy = has_proxy
        self._known: Mapping[str, Traffic] | None = None
        self._asking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Asks, unless the last question is still open; forgets everything where memory is plentiful."""
        if not self._has_proxy:
            return
        if self._neighbours.memory() is Level.OPEN:
            self._known = None
        elif self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask())

    def is_used(self, model: str) -> bool:
        """Whether somebody may have that model's server now; nobody knows means yes."""
        if self._neighbours.in_use():
            return True
        if not self._has_proxy:
            return False
        if self._known is None:
            return True
        traffic = self._known.get(model, Traffic(0, 0))
        return traffic.running > 0 or traffic.waiting > 0

    async def _ask(self) -> None:
        self._known = await self._neighbours.traffic()

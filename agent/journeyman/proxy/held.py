"""Which requests are held for models that do not answer yet."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from journeyman.core.proxy.routes import Route
from journeyman.proxy.route_table import RouteTable

LOOK_AGAIN_SECONDS = 0.05


class Held:
    """The requests that are held, by model.

    Args:
        table: the routes, which say who is asleep.
    """

    def __init__(self, table: RouteTable) -> None:
        self._table = table
        self._count: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._closed = False

    def __getitem__(self, model: str) -> int:
        return self._count[model]

    def change(self, model: str, by: int) -> None:
        """One more request is held for that model, or one less."""
        self._count[model] += by
        self._news.set()

    def close(self) -> None:
        """Whoever waits for news is told that there is none: this proxy ends."""
        self._closed = True
        self._news.set()

    async def wanted(self, seconds: float) -> list[str]:
        """The models that are asleep and asked for, as soon as there is one; none after so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                while not (found := self._asleep(self._table.routes())) and not self._closed:
                    await self._change()
                return found
        except TimeoutError:
            return []

    def _asleep(self, routes: Mapping[str, Route]) -> list[str]:
        return [model for model, route in routes.items() if route.asleep and self._count[model] > 0]

    async def _change(self) -> None:
        if any(self._count.values()):
            # What is held for a model that fails to start has to wake it again once it sleeps.
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            return
        self._news.clear()
        await self._news.wait()

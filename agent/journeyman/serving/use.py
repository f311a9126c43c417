"""Since when nobody has used one model server, by what the proxy passes on and by work of our own."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from journeyman.core.idleness import Idleness, look_for_use
from journeyman.core.liveness import Traffic
from journeyman.ports import Clock
from journeyman.serving.neighbours import Neighbours
from journeyman.serving.server import Server
from journeyman.settings import Settings
from journeyman.waiting import happens_within

# Use is noticed up to one look late, and its end as well: half of the idle time together.
LOOKS_PER_IDLE_TIME = 4
# A task that waits for a model asks for it many times a second.
ASKED_AGAIN_SECONDS = 2.0


class Use:
    """The use of one server that is ready.

    Args:
        server: which.
        neighbours: who may use it.
        clock: time.
        settings: whether there is a proxy.
        routes_changed: tells the proxy whether the server is to be had.
    """

    def __init__(
        self,
        server: Server,
        neighbours: Neighbours,
        clock: Clock,
        settings: Settings,
        routes_changed: Callable[[], None],
    ) -> None:
        self._server = server
        self._neighbours = neighbours
        self._clock = clock
        self._settings = settings
        self._routes_changed = routes_changed
        self._known = Idleness(clock.monotonic())
        self._yield = asyncio.Event()
        self._finish_by = 0.0
        self._asked_at = -math.inf

    @property
    def since(self) -> float:
        """When it was used last, in monotonic seconds."""
        return self._known.used_at

    def begin(self) -> None:
        """It is ready as of now: what went on while it was loading does not count."""
        self._known = Idleness(self._clock.monotonic())
        self._yield.clear()
        self._finish_by = 0.0

    async def is_used_now(self, *, or_waited_for: bool = True) -> bool:
        """Whether somebody has it at this moment.

        Args:
            or_waited_for: whether those count who wait for it.
        """
        traffic = await self._traffic()
        if traffic is None or self._neighbours.in_use():
            return True
        return traffic.running > 0 or (or_waited_for and traffic.waiting > 0)

    def note_asked(self) -> None:
        """Somebody asks for it who is not seen by the proxy, and says so again until it is there."""
        self._asked_at = self._clock.monotonic()

    async def is_waited_for(self) -> bool:
        """Whether somebody would still be there if it came."""
        recently = self._clock.monotonic() - self._asked_at < ASKED_AGAIN_SECONDS
        return recently or await self.is_used_now()

    def yield_soon(self, finish_by: float | None = None) -> None:
        """It shall not wait for the end of its idle time.

        Args:
            finish_by: in monotonic seconds: nobody new is sent to it until then, that it may come to its end.
        """
        self._finish_by = 0.0 if finish_by is None else finish_by
        self._yield.set()

    @property
    def is_yielding(self) -> bool:
        """Whether it has been asked to, and has not said no."""
        return self._yield.is_set()

    async def until_over(self) -> None:
        """Returns once nobody uses it any more; the proxy sends nobody to it then."""
        idle_seconds = self._server.wanted.idle_unload_seconds
        while True:
            if idle_seconds:
                await happens_within(self._yield, idle_seconds / LOOKS_PER_IDLE_TIME, self._clock)
            else:
                await self._yield.wait()
            is_over = self.is_yielding or await self._idle_seconds() >= idle_seconds
            # One that leaves already, as memory is short, is not brought back from here.
            if is_over and not self._server.is_leaving and await self._has_left():
                return
            self._yield.clear()
            self._finish_by = 0.0

    async def _has_left(self) -> bool:
        """Takes it from the proxy's routes, and back where somebody was faster or takes too long."""
        self._leave(True)
        must_finish = self._clock.monotonic() < self._finish_by
        while await self.is_used_now(or_waited_for=not must_finish):
            if self._clock.monotonic() >= self._finish_by:
                self._leave(False)
                return False
            await self._clock.sleep(self._settings.model_probe_interval_seconds)
        return True

    def _leave(self, is_leaving: bool) -> None:  # noqa: FBT001  It is the value of a field.
        self._server.is_leaving = is_leaving
        self._routes_changed()

    async def _idle_seconds(self) -> float:
        traffic, now = await self._traffic(), self._clock.monotonic()
        self._known = look_for_use(self._known, traffic, in_use=self._neighbours.in_use(), now=now)
        return now - self._known.used_at

    async def _traffic(self) -> Traffic | None:
        if not self._settings.proxy:
            return Traffic(0, 0)
        by_model = await self._neighbours.traffic()
        return None if by_model is None else by_model.get(self._server.model, Traffic(0, 0))

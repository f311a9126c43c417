"""Says good-bye before the host sleeps or shuts down, and speaks again once it is back.

It leaves to others how the host tells of it (`ports.PowerEvents`), what is said (`farewell.py`), and the
minute awake that a sleep is followed by (`gate_loop.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from journeyman.errors import HostError
from journeyman.model.power import Going
from journeyman.ports import Clock, PowerEvents
from journeyman.settings import Settings
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)


class PowerLoop:
    """Follows the power of the host.

    Args:
        events: what the host says; None where nobody says anything, and a SIGTERM has to do.
        clock: time.
        settings: how long a farewell may take, and how long a silence is believed.
        leave: says good-bye.
        come_back: ends the silence.
    """

    def __init__(
        self,
        *,
        events: PowerEvents | None,
        clock: Clock,
        settings: Settings,
        leave: Callable[[Going], Awaitable[None]],
        come_back: Callable[[], None],
    ) -> None:
        self._events = events
        self._clock = clock
        self._settings = settings
        self._leave = leave
        self._come_back = come_back
        self._is_silent = False
        self._back = asyncio.Event()
        self._waiting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Listens for ever; where the host cannot be heard it tries again later."""
        if self._events is None:
            await asyncio.Event().wait()
            return
        try:
            while True:
                try:
                    await self._events.listen(self._going, self._returned)
                except HostError as error:
                    log.warning("power_events_not_heard", error=error.message)
                await self._clock.sleep(self._settings.power_retry_seconds)
        finally:
            if self._waiting is not None:
                self._waiting.cancel()

    async def _going(self, why: Going) -> None:
        log.info("host_goes", why=why.value)
        self._is_silent = True
        self._back.clear()
        try:
            async with asyncio.timeout(self._settings.farewell_seconds):
                await self._leave(why)
        except TimeoutError:
            log.warning("farewell_cut_short", why=why.value)
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(self._give_up_silence())

    def _returned(self) -> None:
        self._back.set()
        if self._is_silent:
            self._is_silent = False
            log.info("host_is_back")
            self._come_back()

    async def _give_up_silence(self) -> None:
        """A word that never comes must not silence us for ever; this clock stands still in sleep."""
        if not await happens_within(self._back, self._settings.farewell_patience_seconds, self._clock):
            log.warning("host_did_not_go")
            self._returned()

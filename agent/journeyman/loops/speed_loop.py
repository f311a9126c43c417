"""Measures once how fast each model server generates, while nobody wants anything of it.

A figure is kept on disk for as long as the host serves the same model in the same way, so neither a restart
of the agent nor one of the server measures again.  A measurement that a client's request meets gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import structlog

from journeyman.core import speed
from journeyman.core.model_server import Phase
from journeyman.errors import HostError, WorkerError
from journeyman.ports import Clock, Document, Endpoint
from journeyman.serving.server import Server
from journeyman.waiting import first_of

log = structlog.get_logger(__name__)

# How soon a measurement gives way to a client: below what a person notices.
LOOK_SECONDS = 0.2


class SpeedLoop:
    """The speeds of the model servers of this host.

    Args:
        servers: all of them, the preferred one first.
        measure: tokens a second of one; raises WorkerError if they cannot be told.
        is_idle: whether no work of anybody would disturb the figure, or be disturbed.
        memory: where the figures are kept.
        clock: time.
        idle_seconds: how long a server has been ready before it is measured.
    """

    def __init__(
        self,
        *,
        servers: Callable[[], Sequence[Server]],
        measure: Callable[[Endpoint, str], Coroutine[Any, Any, float]],
        is_idle: Callable[[], Awaitable[bool]],
        memory: Document,
        clock: Clock,
        idle_seconds: float,
    ) -> None:
        self._servers = servers
        self._ask = measure
        self._is_idle = is_idle
        self._memory = memory
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._speeds = speed.from_json(memory.load())
        self._untold: set[str] = set()
        self._changed = asyncio.Event()

    def of(self, model: str) -> float | None:
        """Tokens a second of that model by itself; None if that has not been measured."""
        keys = (_key(server) for server in self._servers() if server.model == model)
        return next((self._speeds[key] for key in keys if key in self._speeds), None)

    def look_soon(self) -> None:
        """A server has changed its phase."""
        self._changed.set()

    async def run(self) -> None:
        """Measures for ever; as a rule there is nothing to measure."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._next() is not None:
                await self._clock.sleep(self._idle_seconds)
                server = self._next()
                if server is not None and server.endpoint is not None and await self._is_idle():
                    await self._measure(server, server.endpoint)

    def _next(self) -> Server | None:
        """The first that has to be measured; none while another is loaded, as that takes the processors."""
        servers = self._servers()
        if any(server.state.phase is Phase.STARTING for server in servers):
            return None
        known = {*self._speeds, *self._untold}
        unknown = (server for server in servers if _can_be_told(server) and _key(server) not in known)
        return next(unknown, None)

    async def _measure(self, server: Server, endpoint: Endpoint) -> None:
        told, _ = await first_of(self._ask(endpoint, server.upstream_model), self._until_wanted())
        if told.cancelled():
            log.info("speed_measurement_gave_way", model=server.model)
            return
        try:
            self._speeds[_key(server)] = round(told.result(), 2)
        except WorkerError as error:
            # Asked again by the next agent; more often would be a load that nobody has ordered.
            self._untold.add(_key(server))
            log.info("speed_not_measured", model=server.model, error=error.message)
            return
        log.info("speed_measured", model=server.model, tokens_per_second=self._speeds[_key(server)])
        self._keep()

    def _keep(self) -> None:
        try:
            self._memory.save(speed.to_json(self._speeds, {_key(server) for server in self._servers()}))
        except HostError as error:
            log.warning("speed_not_kept", error=error.message)

    async def _until_wanted(self) -> None:
        while await self._is_idle():
            await self._clock.sleep(LOOK_SECONDS)


def _key(server: Server) -> str:
    return speed.fingerprint(server.served())


def _can_be_told(server: Server) -> bool:
    return server.endpoint is not None and not server.is_leaving and server.wanted.mode == "chat"

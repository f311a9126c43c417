"""Measures once how fast each model server generates, and what it takes, while nobody wants anything of it.

A figure is kept on disk for as long as the host serves the same model in the same way, so neither a restart
of the agent nor one of the server measures again.  A measurement that a client's request meets gives way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import structlog

from journeyman.core import speed
from journeyman.core.model_server import Phase
from journeyman.core.speed import Measured, Quantity
from journeyman.errors import HostError, WorkerError
from journeyman.ports import Clock, Document, Endpoint
from journeyman.serving.server import Server
from journeyman.waiting import first_of

log = structlog.get_logger(__name__)

# How soon a measurement gives way to a client: below what a person notices.
LOOK_SECONDS = 0.2

Probe = Callable[[Endpoint, str, int], Coroutine[Any, Any, float]]


class SpeedLoop:
    """The speeds of the model servers of this host.

    Args:
        servers: all of them, the preferred one first.
        probes: by what they ask for, in their order; called with where a server answers, what it calls its
            model, and its context.  Raise WorkerError if it cannot be told.
        is_idle: whether no work of anybody would disturb the figure, or be disturbed.
        may_load: whether the host can afford what takes it for longer than a moment.
        sustained: the mean speed of the streams of each model, as far as it is known.
        memory: where the figures are kept.
        clock: time.
        idle_seconds: how long a server has been ready before it is measured.
    """

    def __init__(
        self,
        *,
        servers: Callable[[], Sequence[Server]],
        probes: Mapping[Quantity, Probe],
        is_idle: Callable[[], Awaitable[bool]],
        may_load: Callable[[], bool],
        sustained: Callable[[], Mapping[str, float]],
        memory: Document,
        clock: Clock,
        idle_seconds: float,
    ) -> None:
        self._servers = servers
        self._probes = probes
        self._is_idle = is_idle
        self._may_load = may_load
        self._sustained = sustained
        self._told_sustained: dict[str, float] = {}
        self._memory = memory
        self._clock = clock
        self._idle_seconds = idle_seconds
        self._known = speed.from_json(memory.load())
        self._skipped: dict[str, dict[Quantity, str]] = {}
        self._changed = asyncio.Event()

    def of(self, model: str) -> Measured:
        """What is known of that model by itself."""
        keys = (_key(server) for server in self._servers() if server.model == model)
        key = next((key for key in keys if key in self._known or key in self._skipped), "")
        return speed.measured(self._known.get(key, {}), self._skipped.get(key, {}))

    def told(self) -> str | None:
        """What is known of all models, for the FleetNode; None while one of them is on its way."""
        if self._is_loading():
            return None
        for model, now in self._sustained().items():
            if speed.is_another(self._told_sustained.get(model), now):
                self._told_sustained[model] = now
        known = {server.model: self.of(server.model) for server in self._servers()}
        return speed.told_of(known, self._told_sustained)

    def look_soon(self) -> None:
        """A server has changed its phase, or the host what it can afford."""
        self._changed.set()

    async def run(self) -> None:
        """Measures for ever; as a rule there is nothing to measure."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._next() is not None:
                await self._clock.sleep(self._idle_seconds)
                task = self._next()
                if task is not None and task[0].endpoint is not None and await self._is_idle():
                    await self._measure(*task, task[0].endpoint)

    def _next(self) -> tuple[Server, Quantity] | None:
        """What has to be measured first; nothing while a server is loaded, as that takes the processors."""
        servers = self._servers()
        if self._is_loading():
            return None
        for quantity in filter(self._is_affordable, self._probes):
            for server in filter(_can_be_told, servers):
                key = _key(server)
                if quantity not in {*self._known.get(key, {}), *self._skipped.get(key, {})}:
                    return server, quantity
        return None

    def _is_loading(self) -> bool:
        return any(server.state.phase is Phase.STARTING for server in self._servers())

    def _is_affordable(self, quantity: Quantity) -> bool:
        return quantity not in speed.LOADS or self._may_load()

    async def _measure(self, server: Server, quantity: Quantity, endpoint: Endpoint) -> None:
        question = self._probes[quantity](endpoint, server.upstream_model, server.context_tokens)
        key, model = _key(server), server.model
        told, _ = await first_of(question, self._until_wanted(quantity))
        if told.cancelled():
            log.info("measurement_gave_way", model=model, quantity=quantity)
            return
        try:
            value = round(float(told.result()), 2)
        except WorkerError as error:
            # Asked again by the next agent; more often would be a load that nobody has ordered.
            self._skipped.setdefault(key, {})[quantity] = error.message
            log.info("model_not_measured", model=model, quantity=quantity, error=error.message)
            return
        self._known.setdefault(key, {})[quantity] = value
        log.info("model_measured", model=model, quantity=quantity, value=value)
        self._keep()

    def _keep(self) -> None:
        try:
            self._memory.save(speed.to_json(self._known, {_key(server) for server in self._servers()}))
        except HostError as error:
            log.warning("speed_not_kept", error=error.message)

    async def _until_wanted(self, quantity: Quantity) -> None:
        while self._is_affordable(quantity) and await self._is_idle():
            await self._clock.sleep(LOOK_SECONDS)


def _key(server: Server) -> str:
    return speed.fingerprint(server.served())


def _can_be_told(server: Server) -> bool:
    return server.endpoint is not None and not server.is_leaving and server.wanted.mode == "chat"

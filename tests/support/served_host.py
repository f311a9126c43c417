"""A host that serves models with real processes; each `agent` is the model half of one agent's life on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.adapters.system_clock import SystemClock
from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.core.worker_specs import MODEL_SERVER, Interpreter
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.ports import Endpoint
from journeyman.serving.neighbours import Neighbours
from journeyman.settings import Inference, Settings
from journeyman_updater.contract import WorkerRecord
from tests.support.big_models import store_in
from tests.support.fake_models import RoomForAll, nobody_waits

PYTHON = Interpreter.of(sys.executable, os.environ)


async def no_traffic() -> dict[str, Traffic]:
    return {}


class ServedHost:
    """A state root with its workers.

    Args:
        root: the state root.
        hub_url: where `hf://` leads.
    """

    def __init__(self, root: Path, *, hub_url: str = "http://127.0.0.1:1") -> None:
        self.workers = PosixWorkers(root / "workers")
        self._root = root
        self._store = store_in(root, hub_url=hub_url)

    @contextlib.asynccontextmanager
    async def agent(self, **inference: Any) -> AsyncIterator[Agent]:
        """An agent that serves one model."""
        changed = asyncio.Event()
        loop = ModelServerLoop(
            workers=self.workers,
            store=self._store,
            probe=HttpInferenceProbe(timeout_seconds=60),
            clock=SystemClock(),
            settings=Settings(state_root=self._root, inference=(Inference(**inference),), proxy=False),
            interpreter=PYTHON,
            neighbours=Neighbours(
                changed.set, lambda: Level.OPEN, lambda: False, no_traffic, RoomForAll(), nobody_waits
            ),
        )
        loop.adopt()
        running = asyncio.create_task(loop.run())
        try:
            yield Agent(loop, changed)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def servers(self) -> list[WorkerRecord]:
        """All model servers that run."""
        known = [record for record in self.workers.known() if record.kind == MODEL_SERVER]
        return [record for record in known if self.workers.running(record)]

    async def stop_workers(self) -> None:
        for record in self.workers.known():
            await self.workers.stop(record, grace_seconds=5)


class Agent:
    """One agent while it runs."""

    def __init__(self, loop: ModelServerLoop, changed: asyncio.Event) -> None:
        self._loop = loop
        self._changed = changed

    async def until(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Waits from one change to the next, until what is shown of the server is as wanted."""
        while not condition(self._loop.snapshot()[0]):
            self._changed.clear()
            await self._changed.wait()
        return dict(self._loop.snapshot()[0])

    async def ready(self) -> Endpoint:
        shown = await self.until(lambda shown: shown["phase"] in {"ready", "failed"})
        endpoint = self._loop.endpoint_for(shown["name"])
        assert endpoint is not None, shown
        return endpoint

"""Model servers as real processes: ready, killed, adopted, broken; and a question to the real model."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.model_store import FileModelStore
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.adapters.system_clock import SystemClock
from journeyman.core.completion import RESULT_FILE, Completion, CompletionRequest
from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.core.verdict import judge
from journeyman.core.worker_specs import MODEL_SERVER, Interpreter, freeform_spec
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.model.agentic_task import TaskVerdict
from journeyman.serving.neighbours import Neighbours
from journeyman.settings import Settings
from journeyman_updater.contract import WorkerRecord
from tests.support.fake_models import RoomForAll, nobody_waits

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 100

PYTHON = Interpreter.of(sys.executable, os.environ)


async def no_traffic() -> dict[str, Traffic]:
    return {}


class Host:
    """A state root; each `agent` is the model half of one agent's life on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workers = PosixWorkers(root / "workers")

    @contextlib.asynccontextmanager
    async def agent(self, model: Path) -> AsyncIterator[tuple[ModelServerLoop, asyncio.Event]]:
        changed = asyncio.Event()
        loop = ModelServerLoop(
            workers=self.workers,
            store=FileModelStore(self.root / "models", cache=self.root / "cache"),
            probe=HttpInferenceProbe(timeout_seconds=30),
            clock=SystemClock(),
            settings=Settings(state_root=self.root, models=(str(model),), model_context_tokens=1024),
            interpreter=PYTHON,
            neighbours=Neighbours(
                changed.set, lambda: Level.OPEN, lambda: False, no_traffic, RoomForAll(), nobody_waits
            ),
        )
        loop.adopt()
        running = asyncio.create_task(loop.run())
        try:
            yield loop, changed
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def server(self) -> WorkerRecord:
        (record,) = [record for record in self.workers.known() if record.kind == MODEL_SERVER]
        return record

    async def stop_workers(self) -> None:
        for record in self.workers.known():
            await self.workers.stop(record, grace_seconds=5)


async def until(condition: Callable[[], object], changed: asyncio.Event) -> None:
    """Waits from one change to the next."""
    while not condition():
        changed.clear()
        await changed.wait()


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Host], Coroutine[Any, Any, None]]], None]:
    """Runs a scenario on a fresh host, bounded, and leaves no process behind."""

    def run(scenario: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            host = Host(tmp_path)
            try:
                await asyncio.wait_for(scenario(host), DEADLINE_SECONDS)
            finally:
                await host.stop_workers()

        asyncio.run(bounded())

    return run


Play = Callable[[Callable[[Host], Coroutine[Any, Any, None]]], None]


def test_a_restart_of_the_agent_costs_no_reload(play: Play, tiny_model: Path) -> None:
    """The server that the first agent started is the second one's, with the same pid, port and key."""

    async def scenario(host: Host) -> None:
        async with host.agent(tiny_model) as (loop, changed):
            await until(loop.ready_models, changed)
            endpoint, record = loop.endpoint_for("tiny"), host.server()
        assert host.workers.running(record)
        async with host.agent(tiny_model) as (loop, changed):
            await until(loop.ready_models, changed)
            assert loop.endpoint_for("tiny") == endpoint
        assert host.server() == record

    play(scenario)


def test_a_killed_server_is_noticed_and_replaced(play: Play, tiny_model: Path) -> None:
    """`kill -9` of the server withdraws its endpoint at once, and another one answers soon."""

    async def scenario(host: Host) -> None:
        async with host.agent(tiny_model) as (loop, changed):
            await until(loop.ready_models, changed)
            first = host.server()
            os.kill(first.worker.pid, signal.SIGKILL)
            await until(lambda: loop.endpoint_for("tiny") is None, changed)
            assert loop.snapshot()[0]["reason"] == "the server was ended by signal 9"
            await until(loop.ready_models, changed)
            assert host.server().nonce != first.nonce

    play(scenario)


def test_a_killed_shim_takes_its_server_along(play: Play, tiny_model: Path) -> None:
    """Without its shim a server is ended, so that the next one is never the second in memory."""

    async def scenario(host: Host) -> None:
        async with host.agent(tiny_model) as (loop, changed):
            await until(loop.ready_models, changed)
            first = host.server()
            os.kill(first.shim.pid, signal.SIGKILL)
            await until(lambda: loop.endpoint_for("tiny") is None, changed)
            assert not first.worker.is_running()
            await until(loop.ready_models, changed)

    play(scenario)


def test_a_model_whose_end_is_missing_fails_with_a_reason(
    play: Play, tiny_model: Path, tmp_path: Path
) -> None:
    """A file that holds less than its header says ends in failed, with both numbers."""
    broken = tmp_path / "broken.gguf"
    whole = tiny_model.read_bytes()
    broken.write_bytes(whole[:-100])

    async def scenario(host: Host) -> None:
        async with host.agent(broken) as (loop, changed):
            await until(lambda: loop.snapshot()[0]["phase"] == "failed", changed)
            expected = f"tensors end at byte {len(whole)}, the file at {len(whole) - 100}"
            assert expected in loop.snapshot()[0]["reason"]

    play(scenario)


def test_the_real_model_answers_a_question(play: Play, real_model: Path) -> None:
    """A freeform worker asks the real model through the real server, and the verdict is GO."""

    async def scenario(host: Host) -> None:
        async with host.agent(real_model) as (loop, changed):
            await until(loop.ready_models, changed)
            (model,) = loop.ready_models()
            endpoint = loop.endpoint_for(model)
            assert endpoint is not None
            request = CompletionRequest(
                endpoint.base_url, model, "", "Name three primary colours.", temperature=0, timeout_seconds=80
            )
            spec, files = freeform_spec(request, endpoint.api_key, PYTHON, {"uid": "u-1"})
            record = host.workers.start("task", spec, files)
            ended = await host.workers.wait(record)
            assert ended is not None
            assert ended.succeeded
            result = Completion.from_json(host.workers.read_file(record, RESULT_FILE) or b"")
            judgement = judge(result, model=model)
            assert judgement.verdict is TaskVerdict.GO
            assert len(judgement.message) > 10
            assert result.completion_tokens > 3
            assert result.tokens_per_second is not None

    play(scenario)

"""Programs that misbehave, and models that are damaged, under the loop that keeps real servers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.model_store import FileModelStore
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.adapters.system_clock import SystemClock
from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.core.model_server import Phase
from journeyman.core.worker_specs import MODEL_SERVER, Interpreter
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.ports import JsonObject
from journeyman.serving.neighbours import Neighbours
from journeyman.settings import Inference, Settings
from journeyman_updater.contract import WorkerRecord, session_pids
from tests.support.fake_models import RoomForAll, nobody_waits
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

PYTHON = Interpreter.of(sys.executable, os.environ)
FAKE = Path(__file__).parents[1] / "support" / "fake_model_server.py"
DEADLINE_SECONDS = 100


async def no_traffic() -> dict[str, Traffic]:
    return {}


class Host:
    """A state root with one model, and the agents that live on it one after the other."""

    def __init__(self, root: Path, model: Path) -> None:
        self.root = root
        self.model = model
        self.workers = PosixWorkers(root / "workers")
        self.seen: list[JsonObject] = []
        self.changed = asyncio.Event()

    @contextlib.asynccontextmanager
    async def agent(self, behave: str | None = None, **settings: Any) -> AsyncIterator[ModelServerLoop]:
        """An agent that serves the model by the program that misbehaves so, or by the native server."""
        table: dict[str, Any] = {"name": "tiny", "model": str(self.model), "context_tokens": 512}
        if behave is not None:
            extra = ("--behave", behave) if behave else ()
            table |= {"runtime": "llama-server", "program": FAKE, "extra_args": extra}
        loop = ModelServerLoop(
            workers=self.workers,
            store=FileModelStore(self.root / "models", cache=self.root / "cache"),
            probe=HttpInferenceProbe(timeout_seconds=settings.pop("answer_within", 30)),
            clock=SystemClock(),
            settings=Settings(
                state_root=self.root,
                inference=(Inference(**table),),
                **{"worker_stop_grace_seconds": 2, **settings},
            ),
            interpreter=PYTHON,
            neighbours=Neighbours(
                self._note, lambda: Level.OPEN, lambda: False, no_traffic, RoomForAll(), nobody_waits
            ),
        )
        self.loop = loop
        loop.adopt()
        running = asyncio.create_task(loop.run())
        try:
            yield loop
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def _note(self) -> None:
        self.seen += self.loop.snapshot()
        self.changed.set()

    async def until(self, condition: Callable[[JsonObject], object]) -> JsonObject:
        """What the server showed of itself when that was so for the first time since the last call."""
        while True:
            while self.seen:
                shown = self.seen.pop(0)
                if condition(shown):
                    return shown
            self.changed.clear()
            await self.changed.wait()

    async def until_phase(self, phase: Phase) -> JsonObject:
        return await self.until(lambda shown: shown["phase"] == phase.value)

    def server(self) -> WorkerRecord:
        return next(record for record in self.workers.known() if record.kind == MODEL_SERVER)


async def gone(record: WorkerRecord) -> None:
    """Returns once no process of that worker is left; those that were killed take a moment."""
    await asyncio.to_thread(eventually, lambda: session_pids(record.worker) == [])


Play = Callable[[Callable[[Host], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def play(tmp_path: Path, tiny_model: Path) -> Play:
    """Runs a scenario on a fresh host, bounded, and leaves no process behind."""

    def run(scenario: Callable[[Host], Coroutine[Any, Any, None]]) -> None:
        async def bounded() -> None:
            host = Host(tmp_path, tiny_model)
            try:
                await asyncio.wait_for(scenario(host), DEADLINE_SECONDS)
            finally:
                for record in host.workers.known():
                    await host.workers.stop(record, grace_seconds=1)

        asyncio.run(bounded())

    return run


@pytest.mark.parametrize(
    ("behave", "phase", "failure"),
    [
        ("crash", Phase.BACKOFF, "Crashed"),
        ("sigill", Phase.FAILED, "UnsupportedProcessor"),
        ("public", Phase.FAILED, "OptionRefused"),
    ],
)
def test_an_end_before_it_answers_is_typed(play: Play, behave: str, phase: Phase, failure: str) -> None:
    """The exit is noticed when it happens, and what cannot heal is not tried again."""

    async def scenario(host: Host) -> None:
        async with host.agent(behave):
            shown = await host.until_phase(phase)
            assert shown["failure"] == failure
            assert shown["restarts"] == 0

    play(scenario)


def test_a_key_that_a_program_prints_is_not_shown(play: Play) -> None:
    """The log is a file of ours alone; the status, which travels, has no key in it."""

    async def scenario(host: Host) -> None:
        async with host.agent("prints-key"):
            shown = await host.until_phase(Phase.BACKOFF)
            assert "the key is ***" in shown["lastWords"]

    play(scenario)


def test_a_server_that_says_it_is_loading_is_not_ready(play: Play) -> None:
    """An open port and an answer of 503 are no token; it becomes ready without another start."""

    async def scenario(host: Host) -> None:
        async with host.agent("loading"):
            shown = await host.until_phase(Phase.READY)
            assert shown["restarts"] == 0

    play(scenario)


def test_a_server_that_never_answers_is_replaced(play: Play) -> None:
    """Nobody waits for ever for one that accepts connections and is silent."""

    async def scenario(host: Host) -> None:
        async with host.agent("silent", answer_within=1, model_start_timeout_seconds=3):
            shown = await host.until_phase(Phase.BACKOFF)
            assert shown["failure"] == "NoTokenInTime"
            await gone(host.server())

    play(scenario)


def test_a_program_that_hangs_after_it_was_ready_is_replaced(play: Play) -> None:
    """A port that is open and a process that runs are no life: it is ended and started anew."""

    async def scenario(host: Host) -> None:
        async with host.agent("hangs", answer_within=1, model_liveness_seconds=0.3):
            await host.until_phase(Phase.READY)
            first = host.server()
            shown = await host.until_phase(Phase.BACKOFF)
            assert shown["failure"] == "Hung"
            await gone(first)
            assert (await host.until_phase(Phase.READY))["restarts"] == 1

    play(scenario)


def test_a_real_server_that_stands_still_is_replaced(play: Play) -> None:
    """SIGSTOP leaves the port open and takes every answer; another server takes its place."""

    async def scenario(host: Host) -> None:
        async with host.agent(answer_within=3, model_liveness_seconds=1):
            await host.until_phase(Phase.READY)
            host.workers.signal(host.server(), signal.SIGSTOP)
            assert (await host.until_phase(Phase.BACKOFF))["failure"] == "Hung"
            assert (await host.until_phase(Phase.READY))["restarts"] == 1

    play(scenario)


def test_a_program_that_ignores_sigterm_is_killed(play: Play) -> None:
    """Whoever does not hear is ended all the same, and nothing of it is left."""

    async def scenario(host: Host) -> None:
        async with host.agent("deaf"):
            await host.until_phase(Phase.READY)
            record = host.server()
        await host.loop.stop_all()
        await gone(record)

    play(scenario)


def test_what_a_server_leaves_behind_is_ended(play: Play) -> None:
    """A process that a dead server has left would hold its memory; it is gone before the next one starts."""

    async def scenario(host: Host) -> None:
        async with host.agent("leaves-child"):
            # It ends with its first answer, which may count or not.
            await host.until_phase(Phase.BACKOFF)
            await gone(host.server())

    play(scenario)


def test_a_program_does_not_outlive_its_worker(play: Play) -> None:
    """A server whose worker was killed while no agent ran is not in memory when the next one is loaded."""

    async def scenario(host: Host) -> None:
        async with host.agent(""):
            await host.until_phase(Phase.READY)
            first = host.server()
        os.kill(first.worker.pid, signal.SIGKILL)
        await gone(first)
        async with host.agent(""):
            await host.until_phase(Phase.READY)
            assert host.server() != first

    play(scenario)


def test_a_stop_during_a_start_is_not_waited_for(play: Play) -> None:
    """A server that has not answered yet has nobody to finish for, so it ends with the first signal."""

    async def scenario(host: Host) -> None:
        async with host.agent("silent"):
            await asyncio.to_thread(eventually, host.workers.known)
            record = host.server()
        ended = await host.workers.stop(record, grace_seconds=90)
        assert ended is not None
        # By the signal itself where it came before the program was started.
        assert (ended.code, ended.signal) in {(0, None), (None, signal.SIGTERM)}
        await gone(record)

    play(scenario)


def test_an_agent_adopts_the_program_that_runs(play: Play) -> None:
    """The next agent finds the same process, port and key, and reloads nothing."""

    async def scenario(host: Host) -> None:
        async with host.agent("") as loop:
            await host.until_phase(Phase.READY)
            first, endpoint = host.server(), loop.endpoint_for("tiny")
        async with host.agent("") as loop:
            await host.until_phase(Phase.READY)
            assert (host.server(), loop.endpoint_for("tiny")) == (first, endpoint)

    play(scenario)


def damaged(whole: bytes) -> dict[str, bytes | None]:
    """Files that are no whole model, by what they have to be called."""
    return {
        "Empty": b"",
        "HeaderCut": whole[:300],
        "DataCut": whole[:200_000],
        "OldFormat": b"GGML" + whole[4:],
        "UnsupportedVersion": whole[:4] + struct.pack("<I", 99) + whole[8:],
        "WebPage": b"<!DOCTYPE html><html><body>Not found</body></html>" * 50,
        "Missing": None,
    }


@pytest.mark.parametrize("failure", sorted(damaged(b"")))
def test_each_damaged_model_has_a_reason_of_its_own(play: Play, tmp_path: Path, failure: str) -> None:
    """Seven files, seven words; none of them costs the start of a server."""

    async def scenario(host: Host) -> None:
        content = damaged(host.model.read_bytes())[failure]
        host.model = tmp_path / "damaged.gguf"
        if content is not None:
            host.model.write_bytes(content)
        async with host.agent():
            assert (await host.until_phase(Phase.FAILED))["failure"] == failure
            assert host.workers.known() == []

    play(scenario)

"""Keeping model servers, with time, processes and models under the test's control."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.gates.ladder import Action, Do
from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.core.model_admission import Refusal
from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import Interpreter, model_server_spec
from journeyman.errors import HostError
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.ports import JsonObject, Usage
from journeyman.serving.neighbours import Neighbours
from journeyman.settings import Inference, Settings
from journeyman_updater.contract import WorkerRecord, WorkerSpec
from tests.support.clock import FakeClock
from tests.support.fake_models import FakeModelStore, FakeProbe, model_file
from tests.support.fake_workers import FakeWorkers
from tests.support.waiting import eventually

PYTHON = Interpreter("/opt/python", {"PATH": "/bin"})


class House:
    """One host; `serve` is an agent's life on it, and there may be several in a row."""

    def __init__(self, state_root: Path) -> None:
        self.workers = FakeWorkers()
        self.store: FakeModelStore = FakeModelStore(model_file("smol"))
        self.probe = FakeProbe()
        self.clock = FakeClock()
        self.changes = 0
        self.memory = Level.OPEN
        self.in_use = False
        self.refusal: Refusal | None = None
        self.settlements: list[str] = []
        self.traffic: dict[str, Traffic] | None = {}
        self.proxy_hangs = False
        self.told: Callable[[], None] = lambda: None
        self.held: asyncio.Queue[str] = asyncio.Queue()
        self.values: dict[str, Any] = {
            "state_root": state_root,
            "models": ("smol",),
            "model_start_timeout_seconds": 60,
            "model_context_tokens": 2048,
        }

    async def refuse(self, config: ServerConfig) -> Refusal | None:
        return self.refusal

    async def settled(self, record: WorkerRecord) -> None:
        self.settlements.append(record.worker_id)

    def shown(self, config: ServerConfig | None) -> JsonObject:
        return {"estimatedBytes": None if config is None else 5, "allocatedBytes": None}

    def loop(self, **changes: Any) -> ModelServerLoop:
        def changed() -> None:
            self.changes += 1
            self.told()

        return ModelServerLoop(
            workers=self.workers,
            store=self.store,
            probe=self.probe,
            clock=self.clock,
            settings=Settings(**{**self.values, **changes}),
            interpreter=PYTHON,
            neighbours=Neighbours(
                changed, lambda: self.memory, lambda: self.in_use, self.traffic_now, self, self.wanted
            ),
        )

    async def traffic_now(self) -> dict[str, Traffic] | None:
        if self.proxy_hangs:
            await asyncio.Event().wait()
        return self.traffic

    async def wanted(self) -> list[str]:
        return [await self.held.get()]

    @contextlib.asynccontextmanager
    async def serve(self, **changes: Any) -> AsyncIterator[ModelServerLoop]:
        loop = self.loop(**changes)
        loop.adopt()
        running = asyncio.create_task(loop.run())
        try:
            await self.clock.settle()
            yield loop
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def last(self) -> str:
        return self.workers.started[-1]

    def listens(self, port: int = 4000) -> None:
        """The last server that was started says that it listens."""
        told = json.dumps({"base_url": f"http://127.0.0.1:{port}/v1"}).encode()
        self.workers.files_of(self.last())["endpoint.json"] = told


def scenario(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), 20))


def only(loop: ModelServerLoop) -> JsonObject:
    (shown,) = loop.snapshot()
    return shown


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_server_is_ready_by_a_token_and_not_by_its_port(house: House) -> None:
    """Running, and listening, is not yet answering."""

    async def play() -> None:
        house.probe.silent = True
        async with house.serve() as loop:
            await house.clock.run_for(1)
            assert house.probe.asked == []
            house.listens()
            await house.clock.run_for(1)
            assert house.probe.asked
            assert (loop.ready_models(), loop.endpoint_for("smol")) == ([], None)
            house.probe.silent = False
            await house.clock.run_for(1)
            endpoint = loop.endpoint_for("smol")
            assert endpoint is not None
            assert endpoint.base_url == "http://127.0.0.1:4000/v1"
            assert endpoint.api_key == house.workers.files_of(house.last())["api-key"]
            assert loop.ready_models() == ["smol"]
            assert only(loop)["phase"] == "ready"
            assert endpoint.api_key.decode() not in str(loop.snapshot())
            assert endpoint.api_key.decode() not in repr(endpoint)

    scenario(play)


def test_an_end_is_noticed_at_once_and_followed_by_a_wait(house: House) -> None:
    """The moment a server dies its endpoint is gone; after the wait a new one with a new key takes over."""

    async def play() -> None:
        async with house.serve() as loop:
            house.listens()
            await house.clock.run_for(1)
            first = loop.endpoint_for("smol")
            changes = house.changes
            house.workers.finish(house.last(), code=None, signal=9)
            await house.clock.settle()
            assert loop.endpoint_for("smol") is None
            assert house.changes == changes + 1
            assert only(loop)["phase"] == "backoff"
            assert only(loop)["reason"] == "the server was ended by signal 9"
            await house.clock.run_for(0.8)
            assert len(house.workers.started) == 1
            await house.clock.run_for(0.4)
            assert len(house.workers.started) == 2
            assert len(house.workers.known()) == 1
            house.listens(5000)
            await house.clock.run_for(1)
            second = loop.endpoint_for("smol")
            assert first is not None
            assert second is not None
            assert first.api_key != second.api_key
            assert only(loop)["restarts"] == 1

    scenario(play)


def test_a_model_that_does_not_load_is_not_tried_again(house: House) -> None:
    """Exit code 74 ends in failed, with the server's own reason, however long one waits."""

    async def play() -> None:
        async with house.serve() as loop:
            house.workers.files_of(house.last())["reason.txt"] = b"model smol does not load: bad magic\n"
            house.workers.finish(house.last(), code=74)
            await house.clock.run_for(3600)
            assert only(loop)["phase"] == "failed"
            assert only(loop)["reason"] == "model smol does not load: bad magic"
            assert len(house.workers.started) == 1

    scenario(play)


def test_a_server_that_never_answers_is_stopped_and_started_again(house: House) -> None:
    """A start that takes too long ends the old process before a new one begins."""

    async def play() -> None:
        async with house.serve() as loop:
            await house.clock.run_for(60)
            assert house.workers.stopped == house.workers.started
            assert only(loop)["phase"] == "backoff"
            assert only(loop)["reason"] == "no token within 60 s"
            await house.clock.run_for(2)
            assert len(house.workers.started) == 2

    scenario(play)


def test_a_large_model_gets_the_time_that_a_slow_disk_takes(house: House) -> None:
    """Of 40 GB at 20 MB/s that is 2,000 s more, its draft's included; one that is stuck ends all the same."""

    async def play() -> None:
        house.store.stored["smol"] = replace(model_file("smol"), size_bytes=38 * 10**9)
        house.store.stored["draft"] = replace(model_file("draft"), size_bytes=2 * 10**9)
        large = Inference(model="smol", draft_model="draft")
        async with house.serve(models=(), inference=(large,), model_probe_interval_seconds=10) as loop:
            assert loop.start_seconds("smol") == 2060
            await house.clock.run_for(2058)
            assert only(loop)["phase"] == "starting"
            await house.clock.run_for(2.5)
            assert house.workers.stopped == house.workers.started[:1]
            assert only(loop)["reason"] == "no token within 2060 s"

    scenario(play)


def test_the_next_agent_adopts_what_runs(house: House) -> None:
    """Ending the loop leaves the server; the next loop proves the same process and starts none."""

    async def play() -> None:
        async with house.serve() as loop:
            house.listens()
            await house.clock.run_for(1)
            before = loop.endpoint_for("smol")
        assert house.workers.running(house.workers.known()[0])
        async with house.serve() as loop:
            await house.clock.run_for(1)
            assert loop.endpoint_for("smol") == before
        assert len(house.workers.started) == 1
        assert house.workers.stopped == []

    scenario(play)


def test_an_adopted_server_that_has_hung_is_replaced(house: House) -> None:
    """Adoption is no proof: what does not generate within the time of a start is stopped."""

    async def play() -> None:
        async with house.serve():
            house.listens()
            await house.clock.run_for(1)
        house.probe.silent = True
        async with house.serve() as loop:
            await house.clock.run_for(1)
            assert loop.ready_models() == []
            await house.clock.run_for(62)
            assert house.workers.stopped[0] == house.workers.started[0]
            assert len(house.workers.started) == 2

    scenario(play)


@pytest.mark.parametrize(
    "change",
    [
        {"model_context_tokens": 4096},
        {"model_parallel_slots": 2},
        {"model_threads": 2},
        {"models": ("other",)},
    ],
)
def test_another_configuration_stops_the_old_server_first(house: House, change: dict[str, Any]) -> None:
    """A server for other settings or another model is ended, and then its successor is started."""

    async def play() -> None:
        house.store.stored["other"] = model_file("other")
        async with house.serve():
            pass
        async with house.serve(**change):
            assert house.workers.stopped == house.workers.started[:1]
            assert len(house.workers.started) == 2
            assert len(house.workers.known()) == 1

    scenario(play)


def test_other_weights_under_the_same_name_are_loaded(house: House) -> None:
    """A model whose file has changed gets a new server."""

    async def play() -> None:
        async with house.serve():
            pass
        house.store.stored["smol"] = model_file("smol", sha256="ff")
        async with house.serve():
            assert len(house.workers.started) == 2

    scenario(play)


def test_a_file_that_changed_is_taken_up_at_the_next_start(house: House) -> None:
    """A server that ends comes back with what its model is by then."""

    async def play() -> None:
        async with house.serve():
            house.store.stored["smol"] = model_file("smol", sha256="ff")
            house.workers.finish(house.last(), code=1)
            await house.clock.run_for(2)
            assert '"ff"' in house.workers.spec_of(house.last()).labels["config"]

    scenario(play)


@pytest.mark.parametrize("told", [b"", b"{}", b"[]", b"\0"])
def test_an_unreadable_endpoint_is_no_endpoint(house: House, told: bytes) -> None:
    """A server that cannot say where it listens is not ready, and the others live on."""

    async def play() -> None:
        async with house.serve() as loop:
            house.workers.files_of(house.last())["endpoint.json"] = told
            await house.clock.run_for(1)
            assert only(loop)["phase"] == "starting"
            house.listens()
            await house.clock.run_for(1)
            assert loop.ready_models() == ["smol"]

    scenario(play)


def test_of_two_equal_servers_one_is_stopped(house: House) -> None:
    """However they came to be, two servers for one model are one too many."""
    config = ServerConfig("smol", "/models/smol.gguf", "0f", context_tokens=2048)
    spec, files = model_server_spec(config, b"key", PYTHON)

    async def play() -> None:
        house.workers.start("model-1", spec, files)
        house.workers.start("model-2", spec, files)
        async with house.serve():
            assert house.workers.stopped == ["model-2"]
            assert house.workers.started == ["model-1", "model-2"]

    scenario(play)


def test_a_model_is_fetched_before_its_server_starts(house: House) -> None:
    """What is not here is obtained first, without holding up the event loop."""

    async def play() -> None:
        house.store.obtainable["new"] = model_file("new")
        async with house.serve(models=("new",)) as loop:
            await asyncio.to_thread(eventually, lambda: house.store.obtained == ["new"])
            await asyncio.to_thread(eventually, lambda: house.workers.started)
            house.listens()
            await house.clock.run_for(1)
            assert loop.ready_models() == ["new"]

    scenario(play)


@pytest.mark.parametrize(
    ("error", "phase"), [(HostError("no network"), "backoff"), (None, "failed")], ids=["network", "unknown"]
)
def test_what_cannot_be_fetched_is_retried_unless_it_is_hopeless(
    house: House, error: Exception | None, phase: str
) -> None:
    """A network that is down comes back; a model that nobody knows does not."""

    async def play() -> None:
        house.store.error = error
        async with house.serve(models=("nobody-knows",)) as loop:
            await asyncio.to_thread(eventually, lambda: only(loop)["phase"] == phase)
            assert house.workers.started == []

    scenario(play)


def test_a_start_that_is_refused_is_retried(house: House) -> None:
    """A host that cannot start a process now may be able to later."""

    async def play() -> None:
        house.workers.refusal = "no more processes"
        async with house.serve() as loop:
            assert only(loop)["phase"] == "backoff"
            assert "no more processes" in only(loop)["reason"]
            house.workers.refusal = ""
            await house.clock.run_for(2)
            assert len(house.workers.started) == 1

    scenario(play)


def test_several_models_are_kept_apart_and_in_order(house: House) -> None:
    """One failing model leaves the other alone, and the preferred one comes first."""

    async def play() -> None:
        house.store.stored["other"] = model_file("other")
        async with house.serve(models=("smol", "other")) as loop:
            for number, worker in enumerate(house.workers.started):
                told = json.dumps({"base_url": f"http://127.0.0.1:{number}/v1"}).encode()
                house.workers.files_of(worker)["endpoint.json"] = told
            await house.clock.run_for(1)
            assert loop.ready_models() == ["smol", "other"]
            house.workers.finish(house.workers.started[0], code=74)
            await house.clock.settle()
            assert loop.ready_models() == ["other"]
            assert [shown["phase"] for shown in loop.snapshot()] == ["failed", "ready"]

    scenario(play)


def test_stopping_all_leaves_no_server(house: House) -> None:
    """A host that stops serving ends its servers and leaves other workers alone."""

    async def play() -> None:
        async with house.serve() as loop:
            pass
        house.workers.start("task-1", WorkerSpec("freeform", ("ask",)))
        await loop.stop_all()
        assert [record.worker_id for record in house.workers.known()] == ["task-1"]

    scenario(play)


def test_without_models_the_loop_lives_on(house: House) -> None:
    """An agent that serves nothing has a loop that does nothing, and does not end."""

    async def play() -> None:
        async with house.serve(models=()) as loop:
            await house.clock.run_for(3600)
            assert loop.snapshot() == []

    scenario(play)


@pytest.mark.parametrize("do", [Do.TERMINATE, Do.KILL])
def test_a_server_that_memory_has_no_room_for_is_held_and_comes_back(house: House, do: Do) -> None:
    """It is offered only while memory presses; its end is no failure, and it waits for the gate to open."""

    async def play() -> None:
        async with house.serve() as loop:
            house.listens()
            await house.clock.run_for(1)
            assert loop.work() == []
            house.memory = Level.HOLD
            assert loop.work() == []
            house.memory = Level.KILL
            loop.look(then=lambda: None)
            await house.clock.settle()
            house.workers.uses[house.last()] = Usage(ram_bytes=4096)
            (offered,) = loop.work()
            assert (offered.ram_bytes, offered.idle, offered.gates) == (4096, True, frozenset({"memory"}))
            assert not offered.suspendable
            loop.carry_out(Action(do, offered.job_id, "memory", "AvailBelow3", 30))
            await house.clock.settle()
            assert only(loop)["phase"] == "held"
            assert only(loop)["reason"] == "no memory left for it: AvailBelow3"
            assert (loop.ready_models(), loop.work()) == ([], [])
            await house.clock.run_for(60)
            assert len(house.workers.started) == 1
            loop.look(then=lambda: None)
            house.memory = Level.OPEN
            loop.look(then=lambda: None)
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            assert (loop.ready_models(), only(loop)["restarts"]) == (["smol"], 1)

    scenario(play)


def test_a_server_that_work_uses_is_not_idle(house: House) -> None:
    """The ladder then ends that work first, which can run again elsewhere."""

    async def play() -> None:
        async with house.serve() as loop:
            house.in_use, house.memory = True, Level.DRAIN
            assert [one.idle for one in loop.work()] == [False]

    scenario(play)


@pytest.mark.parametrize(
    ("traffic", "idle"),
    [
        ({}, True),
        ({"smol": Traffic(0, 9)}, True),
        ({"other": Traffic(1, 0)}, True),
        ({"smol": Traffic(1, 0)}, False),
        ({"smol": Traffic(0, 0, waiting=1)}, False),
        (None, False),
    ],
)
def test_a_server_that_a_client_uses_is_not_idle(
    house: House, traffic: dict[str, Traffic] | None, *, idle: bool
) -> None:
    """The proxy is asked before work ends for memory; where it cannot be, somebody may use the server."""

    async def play() -> None:
        house.traffic = traffic
        async with house.serve() as loop:
            house.memory = Level.DRAIN
            offered: list[bool] = []
            loop.look(then=lambda: offered.extend(one.idle for one in loop.work()))
            assert offered == []
            await house.clock.settle()
            assert offered == [idle]

    scenario(play)


def test_who_judges_running_work_waits_for_no_proxy_without_need(house: House) -> None:
    """It is asked only while memory wants work to end and a server runs, and one that hangs for a second."""
    called: list[float] = []

    async def play() -> None:
        async with house.serve() as loop:
            house.proxy_hangs = True
            for number, level in enumerate((Level.OPEN, Level.HOLD), 1):
                house.memory = level
                loop.look(then=lambda: called.append(house.clock.monotonic()))
                assert len(called) == number
            house.memory, began = Level.KILL, house.clock.monotonic()
            for _ in range(3):
                # Another verdict meanwhile is no second question.
                loop.look(then=lambda: called.append(house.clock.monotonic()))
            await house.clock.run_for(2)
            assert called[2:] == [began + 1]
            assert [one.idle for one in loop.work()] == [False]

    scenario(play)


def test_the_ladder_is_told_who_goes_first(house: House) -> None:
    """Priority and protection of a table are those of its server; `normal` is as work without any."""

    async def play() -> None:
        for name in ("other", "third"):
            house.store.stored[name] = model_file(name)
        tables = (
            Inference(model="other", priority="batch"),
            Inference(model="third", priority="critical", eviction_protection=True),
        )
        async with house.serve(models=("smol",), inference=tables) as loop:
            house.memory = Level.DRAIN
            assert [(one.rank, one.protected) for one in loop.work()] == [(0, False), (-2, False), (2, True)]

    scenario(play)


def test_a_server_for_which_there_is_no_memory_waits_with_the_numbers(house: House) -> None:
    """Nothing is started, the reason is told, and it starts once there is room."""

    async def play() -> None:
        house.refusal = Refusal("needs 5 GB; 3 GB are free", is_final=False)
        async with house.serve() as loop:
            assert house.workers.started == []
            shown = only(loop)
            assert (shown["phase"], shown["failure"]) == ("backoff", "InsufficientMemory")
            assert shown["reason"] == "needs 5 GB; 3 GB are free"
            house.refusal = None
            await house.clock.run_for(10)
            assert len(house.workers.started) == 1

    scenario(play)


@pytest.mark.parametrize(("code", "woken"), [(74, True), (1, False)])
def test_a_server_that_waits_for_memory_is_woken_by_the_end_of_another(
    house: House, code: int, *, woken: bool
) -> None:
    """It is tried at once when one has ended for good, and not in place of one that comes back by itself."""

    async def play() -> None:
        house.store.stored["other"] = model_file("other")
        async with house.serve(models=("smol",), inference=(Inference(model="other"),)) as loop:
            told = json.dumps({"base_url": "http://127.0.0.1:4000/v1"}).encode()
            house.workers.files_of(house.workers.started[0])["endpoint.json"] = told
            house.refusal = Refusal("needs 5 GB; 3 GB are free", is_final=False)
            house.workers.finish(house.workers.started[1], code=1)
            await house.clock.run_for(20)
            assert loop.snapshot()[1]["failure"] == "InsufficientMemory"
            assert len(house.workers.started) == 2
            house.refusal = None
            house.workers.finish(house.workers.started[0], code=code)
            await house.clock.settle()
            assert (len(house.workers.started) == 3) is woken

    scenario(play)


def test_a_model_that_can_never_fit_is_not_tried_again(house: House) -> None:
    """Waiting does not make a host larger."""

    async def play() -> None:
        house.refusal = Refusal("needs 50 GB", is_final=True)
        async with house.serve() as loop:
            await house.clock.run_for(1000)
            assert house.workers.started == []
            assert (only(loop)["phase"], only(loop)["failure"]) == ("failed", "ModelTooLarge")
            assert only(loop)["restarts"] == 0

    scenario(play)

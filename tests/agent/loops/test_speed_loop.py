"""Measuring model servers, with time and servers under the test's control."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.core.model_server import Phase, ServerState
from journeyman.core.server_config import ServerConfig
from journeyman.core.speed import Measured, Quantity
from journeyman.errors import WorkerError
from journeyman.loops.speed_loop import Probe, SpeedLoop
from journeyman.ports import Endpoint
from journeyman.serving.server import Server
from journeyman.settings import Inference
from tests.agent.loops.test_model_server_loop import scenario
from tests.support.clock import FakeClock

IDLE_SECONDS, ANSWER_SECONDS = 5.0, 1.0


class Host:
    """The servers of one host, all ready; `loop` is the life of one agent."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.file = folder / "speeds.json"
        self.clock = FakeClock()
        self.servers = [ready(name) for name in names]
        self.asked: list[str] = []
        self.answered: list[str] = []
        self.busy = False
        self.may_load = True
        self.sustained: dict[str, float] = {}
        self.error = ""
        self.probes: dict[Quantity, Probe] = {Quantity.SPEED: self.measure}

    async def measure(self, endpoint: Endpoint, model: str, context_tokens: int) -> float:
        self.asked.append(model)
        await self.clock.sleep(ANSWER_SECONDS)
        if self.error:
            raise WorkerError(self.error)
        self.answered.append(model)
        return 40.123 * len(self.answered)

    async def is_idle(self) -> bool:
        return not self.busy

    @contextlib.asynccontextmanager
    async def loop(self) -> AsyncIterator[SpeedLoop]:
        loop = SpeedLoop(
            servers=lambda: self.servers,
            probes=self.probes,
            is_idle=self.is_idle,
            may_load=lambda: self.may_load,
            sustained=lambda: self.sustained,
            memory=JsonFile(self.file),
            clock=self.clock,
            idle_seconds=IDLE_SECONDS,
        )
        running = asyncio.create_task(loop.run())
        loop.look_soon()
        try:
            yield loop
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def ready(name: str) -> Server:
    return Server(
        Inference(name=name, model=name),
        ServerState(Phase.READY, 0.0),
        config=ServerConfig(name, f"/models/{name}.gguf", "0f"),
        endpoint=Endpoint("http://127.0.0.1:4000/v1", b"k"),
    )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, "smol", "other")


def test_each_server_is_measured_once_and_alone(host: Host) -> None:
    """One after the other, some time after they are ready; a later agent and a restart measure nothing."""

    async def play() -> None:
        async with host.loop() as loop:
            await host.clock.run_for(IDLE_SECONDS - 1)
            assert (host.asked, loop.of("smol")) == ([], Measured())
            await host.clock.run_for(1)
            assert host.asked == ["smol"]
            await host.clock.run_for(30)
            assert host.answered == ["smol", "other"]
            assert [loop.of(model).tokens_per_second for model in ("smol", "other")] == [40.12, 80.25]
        async with host.loop() as loop:
            host.servers[0].state = ServerState(Phase.READY, 99.0, restarts=1)
            loop.look_soon()
            await host.clock.run_for(1000)
            assert (len(host.asked), loop.of("smol").tokens_per_second) == (2, 40.12)

    scenario(play)


def test_another_configuration_is_measured_anew(host: Host) -> None:
    """A figure of other options, or other weights, is not told of these."""

    async def play() -> None:
        async with host.loop() as loop:
            await host.clock.run_for(30)
            assert host.servers[0].config is not None
            host.servers[0].config = replace(host.servers[0].config, cache_type_k="q8_0")
            assert loop.of("smol") == Measured()
            loop.look_soon()
            await host.clock.run_for(30)
            assert host.answered == ["smol", "other", "smol"]

    scenario(play)


def test_a_host_that_works_is_not_measured(host: Host) -> None:
    """It waits until nobody wants anything, and then measures without being told again."""

    async def play() -> None:
        host.busy = True
        async with host.loop():
            await host.clock.run_for(600)
            assert host.asked == []
            host.busy = False
            await host.clock.run_for(30)
            assert host.answered == ["smol", "other"]

    scenario(play)


def test_a_measurement_gives_way_to_a_client(host: Host) -> None:
    """A request that comes in the middle does not wait for its end, and it is taken up later."""

    async def play() -> None:
        async with host.loop():
            await host.clock.run_for(IDLE_SECONDS + ANSWER_SECONDS / 2)
            assert host.asked == ["smol"]
            host.busy = True
            await host.clock.run_for(60)
            assert (host.asked, host.answered) == (["smol"], [])
            host.busy = False
            await host.clock.run_for(30)
            assert host.answered == ["smol", "other"]

    scenario(play)


def test_nothing_is_measured_while_a_model_is_loaded(host: Host) -> None:
    """A load takes the processors and the disk, and the figure would be remembered."""

    async def play() -> None:
        host.servers[1].state = ServerState(Phase.STARTING, 0.0)
        async with host.loop() as loop:
            await host.clock.run_for(600)
            assert host.asked == []
            host.servers[1].state = ServerState(Phase.READY, 0.0)
            loop.look_soon()
            await host.clock.run_for(30)
            assert host.answered == ["smol", "other"]

    scenario(play)


def test_a_server_whose_speed_cannot_be_told_is_left_alone(host: Host) -> None:
    """It is asked once, and the others are measured all the same."""

    async def play() -> None:
        host.error = "2 tokens in 3 s"
        async with host.loop() as loop:
            await host.clock.run_for(IDLE_SECONDS + ANSWER_SECONDS)
            host.error = ""
            await host.clock.run_for(600)
            assert host.asked == ["smol", "other"]
            assert [loop.of(model).tokens_per_second for model in ("smol", "other")] == [None, 40.12]
            assert loop.of("smol").skipped == {Quantity.SPEED: "2 tokens in 3 s"}

    scenario(play)


def test_what_does_not_talk_is_not_measured(host: Host) -> None:
    """An embedder generates nothing, and one that leaves gets nothing new."""

    async def play() -> None:
        host.servers[0].wanted = Inference(name="smol", model="smol", mode="embedding")
        host.servers[1].is_leaving = True
        async with host.loop():
            await host.clock.run_for(600)
            assert host.asked == []

    scenario(play)


def test_all_quantities_are_asked_for_in_their_order(host: Host) -> None:
    """First the speed of every server, then the rest; what cannot be told has its reason, and is left."""

    async def refused(endpoint: Endpoint, model: str, context_tokens: int) -> float:
        host.asked.append(f"{model} behind {context_tokens}")
        raise WorkerError(f"its context of {context_tokens} tokens")

    async def takes_tools(endpoint: Endpoint, model: str, context_tokens: int) -> bool:
        return model == "smol"

    async def play() -> None:
        host.probes |= {Quantity.TOOLS: takes_tools, Quantity.LONG_SPEED: refused}
        async with host.loop() as loop:
            await host.clock.run_for(60)
            assert host.asked == ["smol", "other", "smol behind 0", "other behind 0"]
            known = loop.of("smol")
            assert (known.tokens_per_second, known.long_tokens_per_second) == (40.12, None)
            assert (known.supports_tools, loop.of("other").supports_tools) == (True, False)
            assert known.skipped == {Quantity.LONG_SPEED: "its context of 0 tokens"}
        async with host.loop() as loop:
            await host.clock.run_for(60)
            assert loop.of("other").supports_tools is False
            assert host.asked[4:] == ["smol behind 0", "other behind 0"]

    scenario(play)


def test_a_host_that_has_to_rest_is_not_given_a_long_prompt(host: Host) -> None:
    """While it is held, or on its battery, only short answers are asked for, and what runs ends."""

    async def long(endpoint: Endpoint, model: str, context_tokens: int) -> float:
        host.asked.append(f"{model} long")
        await host.clock.sleep(30)
        return 20.0

    async def play() -> None:
        host.probes[Quantity.LONG_SPEED] = long
        host.may_load = False
        async with host.loop() as loop:
            await host.clock.run_for(60)
            assert host.asked == ["smol", "other"]
            host.may_load = True
            loop.look_soon()
            await host.clock.run_for(IDLE_SECONDS + 10)
            assert host.asked[2:] == ["smol long"]
            host.may_load = False
            await host.clock.run_for(60)
            assert loop.of("smol").long_tokens_per_second is None
            host.may_load = True
            loop.look_soon()
            await host.clock.run_for(120)
            assert host.asked[2:] == ["smol long", "smol long", "other long"]
            assert loop.of("other").long_tokens_per_second == 20.0

    scenario(play)


def test_what_streams_have_shown_is_told_without_a_word_for_each_of_them(host: Host) -> None:
    """The same mean, or one that has hardly changed, leaves the annotation as it is."""

    async def play() -> None:
        host.busy = True
        async with host.loop() as loop:
            assert loop.told() == ""
            told = []
            for mean in (40.0, 42.0, 60.0):
                host.sustained = {"smol": mean}
                told.append(loop.told())
            means = [json.loads(each or "")["smol"] for each in told]
            assert means == [{"sustainedTokensPerSecond": mean} for mean in (40.0, 40.0, 60.0)]

    scenario(play)

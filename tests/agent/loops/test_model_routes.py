"""What the proxy is told of model servers, from the agent's side."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman.core.gates.ladder import Action, Do
from journeyman.core.proxy.routes import RouteState
from journeyman.settings import Inference
from tests.agent.loops.test_model_server_loop import House, only, scenario


@pytest.mark.parametrize(("wanted", "told"), [(1024, 1024), (8192, 2048)])
def test_no_longer_context_is_promised_than_the_model_was_trained_for(
    tmp_path: Path, wanted: int, told: int
) -> None:
    """llama.cpp cuts it to that, so the node, the proxy and the status say so, after an adoption, too."""
    house = House(tmp_path)

    async def play() -> None:
        for _ in range(2):
            async with house.serve(model_context_tokens=wanted) as loop:
                house.listens()
                await house.clock.run_for(1)
                assert loop.context_tokens() == told
                assert [route.context_tokens for route in loop.routes()] == [told]
                assert only(loop)["contextTokens"] == told

    scenario(play)


def test_an_embedder_is_no_model_for_a_task(tmp_path: Path) -> None:
    """Tasks talk, so neither an embedder nor what it can read is promised to them."""
    house = House(tmp_path)

    async def play() -> None:
        async with house.serve(models=(), inference=(Inference(model="smol", mode="embedding"),)) as loop:
            house.listens()
            await house.clock.run_for(1)
            assert (loop.ready_models(), loop.context_tokens()) == (["smol"], 0)
            assert loop.chat_models() == []

    scenario(play)


def test_a_route_follows_its_server(tmp_path: Path) -> None:
    """STARTING before the proof, READY after it, and nothing new for one that is asked to leave."""
    house = House(tmp_path)

    async def play() -> None:
        async with house.serve(model_parallel_slots=3) as loop:
            assert [route.state for route in loop.routes()] == [RouteState.STARTING]
            house.listens()
            await house.clock.run_for(1)
            (route,) = loop.routes()
            assert (route.state, route.base_url) == (RouteState.READY, "http://127.0.0.1:4000/v1")
            assert (route.model, route.slots, route.context_tokens) == ("smol", 3, 2048)
            assert route.key_file.endswith(f"/{house.last()}/files/api-key")
            changes = house.changes
            loop.carry_out(Action(Do.KILL, house.last(), "memory", "AvailBelow3"))
            assert [route.state for route in loop.routes()] == [RouteState.STARTING]
            assert house.changes > changes

    scenario(play)


def test_an_adopted_server_keeps_its_route_until_it_is_proven(tmp_path: Path) -> None:
    """The proof needs a free slot, and clients that were served a moment ago are not held for it."""
    house = House(tmp_path)

    async def play() -> None:
        async with house.serve():
            house.listens()
            await house.clock.run_for(1)
        house.probe.silent = True
        async with house.serve() as loop:
            assert [route.state for route in loop.routes()] == [RouteState.READY]
            assert loop.ready_models() == []
        async with house.serve(model_context_tokens=4096) as loop:
            assert [route.state for route in loop.routes()] == [RouteState.STARTING]

    scenario(play)

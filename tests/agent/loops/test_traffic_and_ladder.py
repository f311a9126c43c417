"""The ladder and the clients of a real proxy: a server that streams is not idle."""

from __future__ import annotations

import asyncio
from pathlib import Path

from journeyman.adapters.proxy_traffic import ProxyTraffic
from journeyman.core.gates.rules import Level
from journeyman.core.liveness import Traffic
from journeyman.loops.model_server_loop import ModelServerLoop
from tests.agent.loops.test_model_server_loop import House
from tests.support.proxies import KEY, model_server, play, proxy, question
from tests.support.scripted_server import DONE, chunk, delta, event


class BehindProxy(House):
    """A host whose agent asks a proxy that listens.

    Attributes:
        asks: the proxy.
    """

    asks: ProxyTraffic

    async def traffic_now(self) -> dict[str, Traffic] | None:
        return await self.asks()


async def offered_as_idle(loop: ModelServerLoop) -> bool:
    """What the ladder is told after a verdict."""
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    loop.look(then=lambda: told.set_result(loop.work()[0].idle))
    return await told


def test_a_stream_through_the_proxy_keeps_its_server_from_going_first(tmp_path: Path) -> None:
    """It is busy from its first word to its last, and idle afterwards."""
    house = BehindProxy(tmp_path / "house")
    house.memory = Level.DRAIN

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.stream(event(delta("hello")))) as server,
            proxy(tmp_path, server.route("smol")) as running,
        ):
            house.asks = ProxyTraffic(lambda: running.base_url, KEY.encode)
            async with house.serve() as loop:
                assert await offered_as_idle(loop)
                asked = running.client.stream("POST", "chat/completions", json=question("smol"))
                async with asked as reply:
                    lines = reply.aiter_lines()
                    assert "hello" in await anext(lines)
                    assert not await offered_as_idle(loop)
                    call = await server.until_asked()
                    call.say(*map(chunk, (event(delta(finish_reason="stop")), event(DONE), b"")))
                    assert f"data: {DONE}" in [line async for line in lines]
                assert await offered_as_idle(loop)

    play(scenario())

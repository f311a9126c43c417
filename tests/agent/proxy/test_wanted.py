"""How the agent hears that a request is held for a model that sleeps."""

from __future__ import annotations

import asyncio
from pathlib import Path

from journeyman.adapters.proxy_traffic import ProxyTraffic
from journeyman.core.proxy.routes import Route, RouteState, routes_from_json, routes_to_json
from tests.support.proxies import KEY, Call, Proxy, model_server, play, proxy, question
from tests.support.scripted_server import plain

ASLEEP = Route("tiny", RouteState.STARTING, asleep=True)
STARTING = Route("tiny", RouteState.STARTING)
ANSWER = plain("200 OK", b'{"choices":[]}')


def say_answer(call: Call) -> None:
    call.say(ANSWER)


def agent_of(running: Proxy) -> ProxyTraffic:
    return ProxyTraffic(lambda: running.base_url, KEY.encode)


async def until(running: Proxy, figure: str) -> None:
    """Returns once the proxy says so; each look lets it work."""
    while figure not in await running.metrics():
        pass


def test_the_agent_hears_of_a_held_request_and_it_is_answered(tmp_path: Path) -> None:
    """The agent waits for news instead of looking for them, and the request is served by whoever is woken."""

    async def scenario() -> None:
        async with model_server(tmp_path, say_answer) as server, proxy(tmp_path, ASLEEP) as running:
            hearing = asyncio.create_task(agent_of(running).wanted())
            asking = asyncio.create_task(running.client.post("/chat/completions", json=question("tiny")))
            assert await hearing == ["tiny"]
            traffic = (await agent_of(running)() or {})["tiny"]
            assert (traffic.running, traffic.waiting) == (0, 1)
            running.set_routes(server.route())
            assert (await asking).status_code == 200

    play(scenario())


def test_only_what_sleeps_is_news(tmp_path: Path) -> None:
    """A request for a model that starts already is told once that start has failed and it sleeps again."""

    async def scenario() -> None:
        async with proxy(tmp_path, STARTING) as running:
            asking = asyncio.create_task(running.client.post("/chat/completions", json=question("tiny")))
            hearing = asyncio.create_task(agent_of(running).wanted())
            await until(running, 'requests_waiting{model="tiny"} 1')
            assert not hearing.done()
            running.set_routes(ASLEEP)
            assert await hearing == ["tiny"]
            asking.cancel()

    play(scenario())


def test_a_model_that_sleeps_is_listed_as_such(tmp_path: Path) -> None:
    """Clients see that it is there to be asked."""

    async def scenario() -> None:
        async with proxy(tmp_path, ASLEEP) as running:
            (shown,) = (await running.client.get("/models")).json()["data"]
            assert (shown["id"], shown["state"]) == ("tiny", "asleep")

    play(scenario())


def test_who_waits_for_news_does_not_hold_a_drain_up(tmp_path: Path) -> None:
    """A proxy that leaves tells its agent at once that there will be none."""

    async def scenario() -> None:
        async with proxy(tmp_path, ASLEEP) as running:
            hearing = asyncio.create_task(agent_of(running).wanted())
            await until(running, "connections 2")
            await running.client.aclose()
            await running.server.drain()
            assert await hearing == []

    play(scenario())


def test_a_proxy_that_is_not_there_has_no_news() -> None:
    """Nobody waits for an answer of nobody."""
    assert asyncio.run(ProxyTraffic(str, KEY.encode).wanted()) == []


def test_a_route_that_sleeps_is_read_by_an_older_proxy() -> None:
    """It is one that is starting, with a field more: so it holds requests for it."""
    read = routes_from_json(routes_to_json([ASLEEP]))
    assert read == {"tiny": ASLEEP}
    assert b'"state": "starting"' in routes_to_json([ASLEEP])

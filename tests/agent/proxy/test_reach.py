"""The door to other machines: who may come in, what they see, and what the rude ones can do there.

Loopback has as many addresses as a test needs sources; networks of their own are in `test_reach_networks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.core.proxy.reach import Reach
from journeyman.core.proxy.routes import Route, RouteState
from tests.support.proxies import KEY, REACH_KEY, Call, Proxy, model_server, play, proxy, question
from tests.support.scripted_server import plain

ADDRESS, CLIENT, OTHER_CLIENT, STRANGER = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.1.1"
OPEN = Reach(ADDRESS, 0, ("127.0.0.2/31",))
CHAT = "/v1/chat/completions"
ANSWER = plain("200 OK", b'{"choices":[],"usage":{"completion_tokens":1}}')
SERVES: dict[str, Any] = {"services": ("default/coder.large",)}
HEADERS = {"Authorization": f"Bearer {REACH_KEY}"}
HEAD = f"Host: x\r\nAuthorization: Bearer {REACH_KEY}\r\n".encode()


def say_answer(call: Call) -> None:
    call.say(ANSWER)


def elsewhere(running: Proxy, **headers: str) -> httpx.AsyncClient:
    """A client on one of the machines that may connect."""
    transport = httpx.AsyncHTTPTransport(local_address=CLIENT, verify=False)
    url = f"http://{ADDRESS}:{running.reach_port}"
    return httpx.AsyncClient(base_url=url, headers={**HEADERS, **headers}, transport=transport, timeout=20)


@contextlib.asynccontextmanager
async def connection(
    running: Proxy, source: str = CLIENT
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A bare connection from an address."""
    try:
        reader, writer = await asyncio.open_connection(ADDRESS, running.reach_port, local_addr=(source, 0))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            pytest.skip("cannot run here: loopback has a single address")
        raise
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """All that comes before the other side has closed."""
    with contextlib.suppress(ConnectionError):
        return await reader.read()
    return b""


async def until_nobody_listens(running: Proxy) -> None:
    """Returns once no connection can be opened."""
    with contextlib.suppress(ConnectionError):
        while True:
            async with connection(running):
                pass


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    """The status of a question about the models."""
    writer.write(b"GET /v1/models HTTP/1.1\r\n" + HEAD + b"\r\n")
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    return int(head.split()[1])


def test_whoever_is_not_of_a_source_is_closed_before_a_byte_is_read(tmp_path: Path) -> None:
    """A stranger gets no answer and no time to say anything; those of the sources are served."""

    async def scenario() -> None:
        async with proxy(tmp_path, reach=OPEN) as running:
            async with connection(running, STRANGER) as (reader, _):
                assert await until_closed(reader) == b""
            for source in (CLIENT, OTHER_CLIENT):
                async with connection(running, source) as (reader, writer):
                    assert await asked(reader, writer) == 200

    play(scenario())


def test_others_see_what_the_fleet_has_it_serve_and_nothing_else(tmp_path: Path) -> None:
    """No other model, under no path; no figures of this host; and its own clients still see everything."""

    async def scenario() -> None:
        async with model_server(tmp_path, say_answer) as server:
            routes = server.route("shown", **SERVES), server.route("private")
            async with proxy(tmp_path, *routes, reach=OPEN) as running, elsewhere(running) as client:
                listed = (await client.get("/v1/models")).json()["data"]
                assert [one["id"] for one in listed] == ["shown"]
                assert (await client.get("/v1/models/shown")).status_code == 200
                assert (await client.get("/v1/models/private")).status_code == 404
                refused = await client.post(CHAT, json=question("private"))
                assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
                assert refused.json()["error"]["message"].endswith("there is: shown")
                for path in ("/metrics", "/wanted", "/", "/v1", "/slots"):
                    assert (await client.get(path)).status_code == 404
                assert (await client.post("/v1/responses", json=question("shown"))).status_code == 404
                assert server.calls == []
                for path in ("chat/completions", "completions", "embeddings", "rerank"):
                    assert (await client.post(f"/v1/{path}", json=question("shown"))).status_code == 200
                assert (await running.client.post("/responses", json=question("private"))).status_code == 200
                assert len((await running.client.get("/models")).json()["data"]) == 2

    play(scenario())


def test_why_a_model_fails_is_this_hosts_own_business(tmp_path: Path) -> None:
    """Others learn that it does: a reason may name files, and the last words of a server anything."""

    async def scenario() -> None:
        why = "no file /home/me/secret-project.gguf"
        failed = Route("shown", RouteState.FAILED, reason=why, **SERVES)
        starting = Route("late", RouteState.STARTING, reason=why, services=("default/late",))
        async with (
            proxy(tmp_path, failed, starting, reach=OPEN, hold_seconds=0.05) as running,
            elsewhere(running) as client,
        ):
            said = [await client.get("/v1/models"), await client.get("/v1/models/shown")]
            said += [await client.post(CHAT, json=question(model)) for model in ("shown", "late")]
            assert [reply.status_code for reply in said] == [200, 200, 503, 503]
            assert not [reply.text for reply in said if "secret" in reply.text]
            assert why in (await running.client.get("/models")).text

    play(scenario())


@pytest.mark.parametrize(
    "host",
    [
        "coder-large.default.svc.cluster.local:8080",
        "coder-large.default.svc.cluster.local.",
        "coder-large.default.svc",
        "Coder-Large.default:8080",
        "coder-large",
    ],
)
def test_a_service_of_the_cluster_is_its_model_whatever_clients_call_it(tmp_path: Path, host: str) -> None:
    """As behind metal-agent, where a Service is one server, which ignores the model's name."""

    async def scenario() -> None:
        async with model_server(tmp_path, say_answer) as server:
            routes = (
                server.route("coder", upstream_model="real", **SERVES),
                server.route("chat", services=("default/chat",)),
            )
            async with (
                proxy(tmp_path, *routes, reach=OPEN) as running,
                elsewhere(running, Host=host) as client,
            ):
                for model in ("gpt-4", "chat", "coder"):
                    assert (await client.post(CHAT, json=question(model))).status_code == 200
                assert {call.json["model"] for call in server.calls} == {"real"}
                listed = (await client.get("/v1/models")).json()["data"]
                assert [one["id"] for one in listed] == ["coder"]

    play(scenario())


@pytest.mark.parametrize("host", ["coder", "coder-large.other.svc", "large", "default", "127.0.0.1", "["])
def test_a_host_that_is_no_service_leaves_the_choice_to_the_model(tmp_path: Path, host: str) -> None:
    """A name that means nothing here, or two services at once, shows all that may be seen."""

    async def scenario() -> None:
        async with model_server(tmp_path, say_answer) as server:
            routes = (
                server.route("one", services=("default/coder.large", "a/coder")),
                server.route("two", services=("b/coder",)),
            )
            async with (
                proxy(tmp_path, *routes, reach=OPEN) as running,
                elsewhere(running, Host=host) as client,
            ):
                assert (await client.post(CHAT, json=question("gpt-4"))).status_code == 404
                assert (await client.post(CHAT, json=question("two"))).status_code == 200

    play(scenario())


def test_each_door_has_its_own_key(tmp_path: Path) -> None:
    """The key that a cluster keeps opens nothing on this host, and the other way round."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, server.route(**SERVES), reach=OPEN) as running,
            elsewhere(running) as client,
        ):
            assert (await client.post(CHAT, json=question())).status_code == 200
            for wrong in ("", f"Bearer {KEY}"):
                refused = await client.post(CHAT, json=question(), headers={"Authorization": wrong})
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            here = await running.client.get("/models", headers=HEADERS)
            assert here.status_code == 401
            assert (await client.get("/health", headers={"Authorization": ""})).status_code == 200
            (call,) = server.calls
            assert REACH_KEY not in call.head

    play(scenario())


def test_a_key_can_be_done_without(tmp_path: Path) -> None:
    """Clients of metal-agent send none, or one that is meant for somebody else."""

    async def scenario() -> None:
        keyless = dataclasses.replace(OPEN, has_key=False)
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, server.route(**SERVES), reach=keyless) as running,
            elsewhere(running) as client,
        ):
            for shown in ("", "Bearer sk-none"):
                reply = await client.post(CHAT, json=question(), headers={"Authorization": shown})
                assert reply.status_code == 200
            assert all("sk-none" not in call.head for call in server.calls)
            assert (await running.client.get("/models", headers={"Authorization": ""})).status_code == 401

    play(scenario())


def test_slow_heads_are_cut_and_idle_connections_are_not(tmp_path: Path) -> None:
    """A head that is begun has to end soon, byte by byte or not; who says nothing may stay."""

    async def scenario() -> None:
        hasty = dataclasses.replace(OPEN, head_seconds=0.05)
        async with proxy(tmp_path, reach=hasty) as running, connection(running) as (reader, writer):
            async with connection(running) as (slow, crawl):
                crawling = asyncio.create_task(until_closed(slow))
                while not crawling.done():
                    crawl.write(b"G")
                    await asyncio.wait({crawling}, timeout=0.01)
                assert crawling.result() == b""
            assert await asked(reader, writer) == 200

    play(scenario())


def test_a_slow_body_is_cut(tmp_path: Path) -> None:
    """All of it has to come in time; that some of it goes on coming is not enough."""

    async def scenario() -> None:
        hasty = dataclasses.replace(OPEN, body_seconds=0.1)
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(**SERVES), reach=hasty) as running,
            connection(running) as (reader, writer),
        ):
            writer.write(b"POST /v1/completions HTTP/1.1\r\n" + HEAD + b"Content-Length: 100000\r\n\r\n{")
            cut = asyncio.create_task(until_closed(reader))
            while not cut.done():
                writer.write(b" ")
                await asyncio.wait({cut}, timeout=0.01)
            assert cut.result() == b""
            assert server.calls == []

    play(scenario())


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 600_000, b"431"),
        (b"GET /v1/models HTTP/1.1\r\n" + b"X: y\r\n" * 100_000, b"431"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"404"),
    ],
    ids=["one huge header", "many headers", "TLS", "HTTP/2"],
)
def test_a_head_that_is_none_is_refused_and_closed(tmp_path: Path, head: bytes, status: bytes) -> None:
    """What is too large is not kept, and what is no HTTP/1.1 is not guessed at."""

    async def scenario() -> None:
        async with proxy(tmp_path, reach=OPEN) as running, connection(running) as (reader, writer):
            writer.write(head)
            assert (await until_closed(reader)).split(b" ")[1] == status

    play(scenario())


def test_one_source_cannot_take_the_place_of_others(tmp_path: Path) -> None:
    """Its connections are counted, each that ends makes room, and other sources and this host have theirs."""

    async def scenario() -> None:
        few = dataclasses.replace(OPEN, connections_per_source=2, connection_limit=3)
        async with proxy(tmp_path, reach=few) as running, contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(connection(running))
            second = await stack.enter_async_context(connection(running))
            assert [await asked(*each) for each in (first, second)] == [200, 200]
            async with connection(running) as (reader, _):
                assert await until_closed(reader) == b""
            third = await stack.enter_async_context(connection(running, OTHER_CLIENT))
            assert await asked(*third) == 200
            async with connection(running, OTHER_CLIENT) as (reader, _):
                assert await until_closed(reader) == b""
            assert (await running.client.get("/models")).status_code == 200
            first[1].transport.abort()
            while "journeyman_proxy_connections 3" not in await running.metrics():
                pass
            async with connection(running) as fresh:
                assert await asked(*fresh) == 200

    play(scenario())


def test_bodies_of_others_take_a_bounded_share_of_the_memory(tmp_path: Path) -> None:
    """Who brings more than there is room for is told to come back; what was brought before is served."""

    async def scenario() -> None:
        small = dataclasses.replace(OPEN, held_bytes=2500)
        large = json.dumps(question(text="x" * 2000)).encode()
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(**SERVES), reach=small) as running,
            elsewhere(running) as client,
        ):
            for number in (1, 2):
                first = asyncio.create_task(client.post(CHAT, content=large))
                call = await server.until_asked(number)
                refused = await client.post(CHAT, content=large)
                assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
                assert int(refused.headers["retry-after"]) > 0
                call.say(ANSWER)
                assert (await first).status_code == 200

    play(scenario())


def test_a_client_elsewhere_that_vanishes_ends_its_generation(tmp_path: Path) -> None:
    """Distance changes nothing about whom the server works for."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(**SERVES), reach=OPEN) as running,
        ):
            body = json.dumps(question()).encode()
            async with connection(running) as (_, writer):
                writer.write(
                    f"POST {CHAT} HTTP/1.1\r\nContent-Length: {len(body)}\r\n".encode()
                    + HEAD
                    + b"\r\n"
                    + body
                )
                call = await server.until_asked()
            await call.gone.wait()

    play(scenario())


def test_a_sleeping_service_is_woken_from_elsewhere(tmp_path: Path) -> None:
    """A request is held, told to the agent under the model's own name, and answered by whoever is woken."""

    async def scenario() -> None:
        asleep = Route("tiny", RouteState.STARTING, asleep=True, services=("default/tiny-chat",))
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, asleep, reach=OPEN) as running,
            elsewhere(running, Host="tiny-chat.default.svc") as client,
        ):
            wanted = running.base_url.removesuffix("/v1") + "/wanted"
            hearing = asyncio.create_task(running.client.get(wanted))
            asking = asyncio.create_task(client.post(CHAT, json=question("whatever")))
            assert (await hearing).json() == {"models": ["tiny"]}
            running.set_routes(server.route(services=("default/tiny-chat",)))
            assert (await asking).status_code == 200

    play(scenario())


def test_a_drain_closes_both_doors_and_finishes_what_is_asked(tmp_path: Path) -> None:
    """Nobody new comes in anywhere; a reply on its way to another machine is whole."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(**SERVES), reach=OPEN) as running,
            elsewhere(running) as client,
        ):
            asking: asyncio.Task[Any] = asyncio.create_task(client.post(CHAT, json=question()))
            call = await server.until_asked()
            draining = asyncio.create_task(running.server.drain())
            await until_nobody_listens(running)
            assert not draining.done()
            call.say(ANSWER)
            assert (await asking).status_code == 200
            await draining

    play(scenario())

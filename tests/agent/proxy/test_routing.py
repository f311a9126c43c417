"""Where requests go, how long they wait, and what the proxy refuses by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from pathlib import Path

import pytest

from journeyman.core.proxy.routes import Route, RouteState
from tests.support.proxies import KEY, SERVER_KEY, Call, model_server, play, proxy, question
from tests.support.scripted_server import DONE, delta, event, plain

CHAT = "/chat/completions"
ANSWER = plain("200 OK", b'{"choices":[],"usage":{"completion_tokens":1}}')
STREAM = (event(delta("a")), event(delta(finish_reason="stop")), event(DONE), b"")
LOADING = plain("503 Service Unavailable", b'{"error":{"message":"Loading model"}}')


def say_answer(call: Call) -> None:
    call.say(ANSWER)


def test_each_model_is_its_own_servers(tmp_path: Path) -> None:
    """Not the first server that is healthy gets a request, but the one of its model."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, say_answer) as first,
            model_server(tmp_path, say_answer) as second,
            proxy(tmp_path, first.route("one"), second.route("two")) as running,
        ):
            for path in (CHAT, "/completions", "/embeddings", "/rerank"):
                assert (await running.client.post(path, json=question("two"))).status_code == 200
            assert first.calls == []
            heads = [call.head.split("\r\n")[0] for call in second.calls]
            assert heads == [
                f"POST /v1{path} HTTP/1.1" for path in (CHAT, "/completions", "/embeddings", "/rerank")
            ]

    play(scenario())


def test_a_body_goes_through_byte_for_byte(tmp_path: Path) -> None:
    """Odd spacing, escapes and long numbers arrive as they were sent; so does what comes back."""
    body = b' { "messages" : [ "\xc3\xbc\\u00fc" ] ,"x":1.10000000000000000001,\n"model":"tiny", "y":1e400 } '
    back = b"\x00\xff any bytes \r\n\r\n"

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.say(plain("207 Odd", back))) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            reply = await running.client.post("/responses?a=1", content=body, headers={"X-Own": "7"})
            assert (reply.status_code, reply.reason_phrase, reply.content) == (207, "Odd", back)
            (call,) = server.calls
            assert call.body == body
            assert "x-own: 7" in call.head.lower()
            assert call.head.startswith("POST /v1/responses?a=1 HTTP/1.1\r\n")

    play(scenario())


def test_the_model_field_is_pinned_to_what_the_server_has(tmp_path: Path) -> None:
    """A server that would unload its model for another name is never told another name."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, server.route("alias", upstream_model="/models/real")) as running,
        ):
            await running.client.post(CHAT, json=question("alias"))
            assert server.calls[0].json == question("/models/real")
            refused = await running.client.post(CHAT, json=question("other"))
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
            assert len(server.calls) == 1

    play(scenario())


def test_keys_are_not_mixed_up(tmp_path: Path) -> None:
    """A client shows the proxy's key, the server gets its own, and neither sees the other's."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            for wrong in ("", "Bearer", "Bearer " + SERVER_KEY, "Basic " + KEY):
                for path in ("/models", "/chat/completions"):
                    refused = await running.client.post(path, json={}, headers={"Authorization": wrong})
                    assert refused.status_code == 401
                    assert refused.headers["www-authenticate"] == "Bearer"
            assert (await running.client.post(CHAT, json=question())).status_code == 200
            (call,) = server.calls
            assert f"Bearer {SERVER_KEY}" in call.head
            assert KEY not in call.head
            health = running.base_url.removesuffix("/v1") + "/health"
            assert (await running.client.get(health, headers={"Authorization": ""})).status_code == 200
            metrics = running.base_url.removesuffix("/v1") + "/metrics"
            assert (await running.client.get(metrics, headers={"Authorization": ""})).status_code == 401

    play(scenario())


def test_models_are_listed_with_their_state(tmp_path: Path) -> None:
    """A list that says 200 while a model loads says, too, that it loads."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(
                tmp_path, server.route("a", context_tokens=512), Route("b", RouteState.STARTING)
            ) as running,
        ):
            listed = (await running.client.get("/models")).json()
            assert listed["object"] == "list"
            assert [(one["id"], one["state"], one["object"]) for one in listed["data"]] == [
                ("a", "ready", "model"),
                ("b", "starting", "model"),
            ]
            assert (await running.client.get("/models/a")).json() == listed["data"][0]
            assert (await running.client.get("/models/c")).status_code == 404
            assert (await running.client.delete("/models/a")).status_code == 405

    play(scenario())


def test_a_request_is_held_while_its_model_starts(tmp_path: Path) -> None:
    """It is answered as soon as the model is there, and counts as waiting before."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, Route("tiny", RouteState.STARTING)) as running,
        ):
            asked = asyncio.create_task(running.client.post(CHAT, json=question()))
            waits = 'journeyman_proxy_requests_waiting{model="tiny"} 1'
            while waits not in await running.metrics():
                assert not asked.done()
            running.set_routes(server.route())
            assert (await asked).status_code == 200

    play(scenario())


def test_a_request_that_waited_too_long_is_told_when_to_try_again(tmp_path: Path) -> None:
    """503 with Retry-After and the reason; the model is not given up for it, and the next request gets it."""

    async def scenario() -> None:
        starting = Route("tiny", RouteState.STARTING, reason="ended by signal 9")
        async with (
            model_server(tmp_path, say_answer) as server,
            proxy(tmp_path, starting, hold_seconds=0.05) as running,
        ):
            refused = await running.client.post(CHAT, json=question())
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert "ended by signal 9" in refused.json()["error"]["message"]
            running.set_routes(server.route())
            assert (await running.client.post(CHAT, json=question())).status_code == 200

    play(scenario())


def test_a_model_that_failed_is_refused_at_once(tmp_path: Path) -> None:
    """Nobody waits for what needs a person first."""

    async def scenario() -> None:
        failed = Route("tiny", RouteState.FAILED, reason="no such file")
        async with proxy(tmp_path, failed, hold_seconds=3600) as running:
            refused = await running.client.post(CHAT, json=question())
            assert refused.status_code == 503
            assert "no such file" in refused.json()["error"]["message"]
            assert "retry-after" not in refused.headers

    play(scenario())


def test_a_server_that_moved_is_found_there(tmp_path: Path) -> None:
    """A dead port is no answer: the route is read again until the server is where it says."""

    async def scenario() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            dead = Route("tiny", RouteState.READY, f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
            async with (
                model_server(tmp_path, say_answer) as server,
                proxy(tmp_path, dead) as running,
            ):
                asked = asyncio.create_task(running.client.post(CHAT, json=question()))
                while "requests_waiting" not in (text := await running.metrics()) or "} 1" not in text:
                    assert not asked.done()
                running.set_routes(server.route())
                assert (await asked).status_code == 200

    play(scenario())


def test_a_server_that_says_it_is_loading_is_asked_again(tmp_path: Path) -> None:
    """llama.cpp answers 503 behind an open port until the model is there; the client does not see it."""
    replies = [LOADING, LOADING, ANSWER]

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.say(replies.pop(0))) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            assert (await running.client.post(CHAT, json=question())).status_code == 200
            assert len(server.calls) == 3

    play(scenario())


def test_a_server_that_goes_on_loading_has_the_last_word(tmp_path: Path) -> None:
    """When the time is over its own 503 is what the client gets."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.say(LOADING)) as server,
            proxy(tmp_path, server.route(), hold_seconds=0.05) as running,
        ):
            reply = await running.client.post(CHAT, json=question())
            assert (reply.status_code, reply.json()["error"]["message"]) == (503, "Loading model")

    play(scenario())


def test_one_slot_is_asked_by_one_at_a_time(tmp_path: Path) -> None:
    """A server that two requests would disturb gets them one after the other, in the order they came."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(slots=1)) as running,
        ):
            asked = []
            for number in range(3):
                asked.append(asyncio.create_task(running.client.post(CHAT, json=question(n=number))))
                waiting = f'journeyman_proxy_requests_waiting{{model="tiny"}} {number}'
                while waiting not in await running.metrics():
                    pass
            for number in range(3):
                call = await server.until_asked(number + 1)
                assert (len(server.calls), call.json["n"]) == (number + 1, number)
                call.say(ANSWER)
                assert (await asked[number]).status_code == 200

    play(scenario())


def test_a_full_queue_sends_away(tmp_path: Path) -> None:
    """429 with Retry-After, and the ones that wait are served."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(slots=1), queue_limit=1) as running,
        ):
            asked = [asyncio.create_task(running.client.post(CHAT, json=question())) for _ in range(2)]
            while 'requests_waiting{model="tiny"} 1' not in await running.metrics():
                pass
            refused = await running.client.post(CHAT, json=question())
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            for number in range(2):
                (await server.until_asked(number + 1)).say(ANSWER)
            assert [(await one).status_code for one in asked] == [200, 200]
            assert 'requests_total{model="tiny",outcome="refused"} 1' in await running.metrics()

    play(scenario())


def test_a_client_that_leaves_the_queue_is_never_asked_for(tmp_path: Path) -> None:
    """What waits for its turn costs the server nothing once its client has gone."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(slots=1)) as running,
        ):
            first = asyncio.create_task(running.client.post(CHAT, json=question(n=0)))
            await server.until_asked()
            leaver = asyncio.create_task(running.client.post(CHAT, json=question(n=1)))
            while 'requests_waiting{model="tiny"} 1' not in await running.metrics():
                pass
            last = asyncio.create_task(running.client.post(CHAT, json=question(n=2)))
            while 'requests_waiting{model="tiny"} 2' not in await running.metrics():
                pass
            leaver.cancel()
            while 'requests_waiting{model="tiny"} 1' not in await running.metrics():
                pass
            server.calls[0].say(ANSWER)
            call = await server.until_asked(2)
            assert call.json["n"] == 2
            call.say(ANSWER)
            assert {(await first).status_code, (await last).status_code} == {200}

    play(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET http://127.0.0.1:1/v1/models HTTP/1.1\r\nHost: x\r\n", b"404"),
        (b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n", b"404"),
        (b"GET /v1/../metrics HTTP/1.1\r\nHost: x\r\n", b"404"),
        (b"GET /slots HTTP/1.1\r\nHost: x\r\n", b"404"),
        (b"GET /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", b"405"),
        (b"POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n", b"405"),
        (b"GET /v1/models HTTP/1.1\r\n", b"400"),
        (b"nonsense\r\n", b"400"),
        (b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 600_000 + b"\r\n", b"431"),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", b"400"),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n", b"400"),
        (b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n", b"501"),
    ],
    ids=lambda value: value.decode()[:24] if isinstance(value, bytes) else None,
)
def test_a_request_that_is_none_of_ours_is_refused(
    tmp_path: Path, request_bytes: bytes, status: bytes
) -> None:
    """Other hosts and paths, broken or ambiguous framing, endless heads: an error, and no server is asked."""

    async def scenario() -> None:
        async with model_server(tmp_path) as server, proxy(tmp_path, server.route()) as running:
            line, rest = request_bytes.split(b"\r\n", 1)
            key = f"Authorization: Bearer {KEY}\r\nConnection: close\r\n".encode()
            head = line + b"\r\n" + key + rest + b"\r\n"
            assert (await running.raw(head)).startswith(b"HTTP/1.1 " + status)
            assert server.calls == []

    play(scenario())


@pytest.mark.parametrize("told", [True, False], ids=["told", "chunked"])
def test_a_body_that_is_too_large_is_refused(tmp_path: Path, *, told: bool) -> None:
    """413 before it is read where its length is told, and at the limit where it is not."""

    async def parts() -> object:
        yield b"x" * 2000

    async def scenario() -> None:
        async with (
            model_server(tmp_path) as server,
            proxy(tmp_path, server.route(), body_limit_bytes=1000) as it,
        ):
            content = b"x" * 2000 if told else parts()
            refused = await it.client.post(CHAT, content=content)  # type: ignore[arg-type]
            assert refused.status_code == 413
            assert "1000 bytes" in refused.json()["error"]["message"]
            assert server.calls == []

    play(scenario())


def test_a_client_that_waits_for_leave_to_send_gets_it(tmp_path: Path) -> None:
    """`Expect: 100-continue`, as curl sends it with a long prompt."""

    async def scenario() -> None:
        async with model_server(tmp_path, say_answer) as server, proxy(tmp_path, server.route()) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            body = json.dumps(question()).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
            writer.write(f"{head}Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            writer.write(body)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            writer.close()

    play(scenario())


def test_too_many_connections_are_turned_away(tmp_path: Path) -> None:
    """The limit holds, and a place that is given up can be taken."""

    async def scenario() -> None:
        async with proxy(tmp_path, connection_limit=2) as running:
            taken = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(2)]
            # Answered, so both have been accepted.
            for reader, writer in taken:
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                assert b"ok" in await reader.readuntil(b"}")
            with contextlib.suppress(ConnectionResetError):
                assert await running.raw(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n") == b""
            taken[0][1].close()
            await taken[0][1].wait_closed()
            answer = b""
            while not answer:
                try:
                    answer = await running.raw(
                        b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                    )
                except ConnectionResetError:
                    continue
            assert b"200" in answer
            taken[1][1].close()

    play(scenario())


def test_a_slow_head_does_not_keep_its_place(tmp_path: Path) -> None:
    """Who does not finish asking is disconnected."""

    async def scenario() -> None:
        async with proxy(tmp_path, head_seconds=0.1) as running:
            assert await running.raw(b"GET /health HTT") == b""

    play(scenario())


def test_routes_that_cannot_be_read_keep_the_last_ones(tmp_path: Path) -> None:
    """A damaged file takes no model away."""

    async def scenario() -> None:
        async with model_server(tmp_path, say_answer) as server, proxy(tmp_path, server.route()) as running:
            assert (await running.client.post(CHAT, json=question())).status_code == 200
            (tmp_path / "routes.json").write_text("{")
            assert (await running.client.post(CHAT, json=question())).status_code == 200

    play(scenario())

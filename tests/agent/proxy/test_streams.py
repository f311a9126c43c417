"""How streams pass, how they break, and who learns of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.support.proxies import KEY, Call, model_server, play, proxy, question
from tests.support.scripted_server import DONE, OK_UNTIL_CLOSE, chunk, delta, event, plain

CHAT = "/chat/completions"
DELTAS = [event(delta(letter)) for letter in "abc"]
LAST = event(delta(finish_reason="stop"))
TOOL = [
    event({"choices": [{"delta": {"tool_calls": [{"index": number, "function": {"arguments": part}}]}}]})
    for number, part in ((0, '{"a'), (1, '{"b'), (0, '":1}'), (1, '":2}'))
]


def outcome(name: str, number: int = 1) -> str:
    return f'journeyman_proxy_requests_total{{model="tiny",outcome="{name}"}} {number}'


def clean(call: Call) -> None:
    call.stream(*DELTAS, LAST, event(DONE), b"")


@pytest.mark.parametrize(
    "events",
    [
        [*DELTAS, LAST, event(DONE)],
        [b": keepalive\n\n"] * 3 + [*DELTAS, LAST, event(DONE)],
        [*TOOL, event(delta(finish_reason="tool_calls")), event(DONE)],
        [event({"choices": []}), event(delta(None)), *DELTAS, LAST],
        [*DELTAS, event(DONE)],
    ],
    ids=["clean", "comments", "parallel tool calls", "no done", "no finish reason"],
)
def test_a_whole_stream_passes_byte_for_byte(tmp_path: Path, events: list[bytes]) -> None:
    """Whatever a server has to say, its client hears all of it and nothing else."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.stream(*events, b"")) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            reply = await running.client.post(CHAT, json=question())
            assert reply.content == b"".join(events)
            assert reply.headers["content-type"] == "text/event-stream"
            assert outcome("done") in await running.metrics()

    play(scenario())


def test_each_token_passes_when_it_comes(tmp_path: Path) -> None:
    """Nothing is kept back for more to come."""

    async def scenario() -> None:
        async with model_server(tmp_path) as server, proxy(tmp_path, server.route()) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(_raw_question())
            call = await server.until_asked()
            call.stream(DELTAS[0])
            await reader.readuntil(DELTAS[0])
            for one in DELTAS[1:]:
                call.say(chunk(one))
                await reader.readuntil(one)
            writer.close()

    play(scenario())


def test_a_vanished_client_ends_its_generation(tmp_path: Path) -> None:
    """The server's connection is closed as soon as the client's is, also while it reads the prompt."""

    async def scenario() -> None:
        async with model_server(tmp_path) as server, proxy(tmp_path, server.route()) as running:
            for number, begun in enumerate((False, True), 1):
                asked = asyncio.create_task(running.client.post(CHAT, json=question()))
                call = await server.until_asked(number)
                if begun:
                    call.stream(*DELTAS)
                    while "journeyman_proxy_requests_running" not in await running.metrics():
                        pass
                asked.cancel()
                await call.gone.wait()
            while outcome("client_gone", 2) not in await running.metrics():
                pass

    play(scenario())


@pytest.mark.parametrize("close_delimited", [True, False], ids=["until close", "chunked"])
def test_a_truncated_stream_is_told_to_its_client(tmp_path: Path, *, close_delimited: bool) -> None:
    """mlx_lm.server killed in the middle leaves a whole HTTP reply; our client gets an error either way."""

    def answer(call: Call) -> None:
        if close_delimited:
            call.say(OK_UNTIL_CLOSE, *DELTAS)
        else:
            call.stream(*DELTAS)
        call.writer.close()

    async def scenario() -> None:
        async with model_server(tmp_path, answer) as server, proxy(tmp_path, server.route()) as running:
            with pytest.raises(httpx.RemoteProtocolError):
                await running.client.post(CHAT, json=question())
            got = await running.raw(_raw_question())
            assert all(one in got for one in DELTAS)
            (told,) = [line for line in got.split(b"\n") if b'"error"' in line]
            assert json.loads(told.removeprefix(b"data: "))["error"]["code"] == "stream_truncated"
            assert outcome("truncated", 2) in await running.metrics()

    play(scenario())


def test_an_event_that_broke_off_does_not_swallow_the_error(tmp_path: Path) -> None:
    """Half a line of the server's is ended before ours begins."""

    def answer(call: Call) -> None:
        call.stream(DELTAS[0], b'data: {"choices":[{"del')
        call.writer.close()

    async def scenario() -> None:
        async with model_server(tmp_path, answer) as server, proxy(tmp_path, server.route()) as running:
            got = await running.raw(_raw_question())
            (last,) = [line for line in got.split(b"\n") if b'"error"' in line]
            assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "stream_truncated"

    play(scenario())


def test_an_error_inside_a_200_passes_and_is_counted(tmp_path: Path) -> None:
    """llama.cpp ends such a stream without its last word; the client has been told, so it is whole."""
    events = [*DELTAS, event({"error": {"code": 500, "message": "no", "type": "server_error"}})]

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.stream(*events, b"")) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            assert (await running.client.post(CHAT, json=question())).content == b"".join(events)
            assert outcome("server_error") in await running.metrics()

    play(scenario())


def test_a_server_that_never_closes_after_its_last_word_is_not_waited_for(tmp_path: Path) -> None:
    """The client's reply ends, and the slot is free."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.stream(*DELTAS, LAST)) as server,
            proxy(tmp_path, server.route(), tail_seconds=0.05) as running,
        ):
            assert (await running.client.post(CHAT, json=question())).content == b"".join([*DELTAS, LAST])
            await server.calls[0].gone.wait()
            assert outcome("done") in await running.metrics()

    play(scenario())


@pytest.mark.parametrize("begun", [True, False])
def test_a_server_that_falls_silent_is_given_up(tmp_path: Path, *, begun: bool) -> None:
    """A port that accepts and never answers costs a bounded time: 504 at first, an error event later."""

    def answer(call: Call) -> None:
        if begun:
            call.stream(*DELTAS)

    async def scenario() -> None:
        async with (
            model_server(tmp_path, answer) as server,
            proxy(tmp_path, server.route(), stall_seconds=0.1) as running,
        ):
            got = await running.raw(_raw_question())
            assert (b"stream_stalled" if begun else b"HTTP/1.1 504") in got
            await server.calls[0].gone.wait()

    play(scenario())


def test_a_server_that_breaks_off_before_it_answers_is_told_and_not_asked_twice(tmp_path: Path) -> None:
    """It may have begun to work, so the client decides about a second try."""

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.writer.close()) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            reply = await running.client.post(CHAT, json=question())
            assert (reply.status_code, reply.json()["error"]["code"]) == (502, "model_broke_off")
            assert len(server.calls) == 1

    play(scenario())


def test_errors_of_the_server_are_the_clients(tmp_path: Path) -> None:
    """A prompt that is too long is explained by the one who knows how long it may be."""
    body = b'{"error":{"code":400,"type":"exceed_context_size_error","n_ctx":2048}}'

    async def scenario() -> None:
        async with (
            model_server(tmp_path, lambda call: call.say(plain("400 Bad Request", body))) as server,
            proxy(tmp_path, server.route()) as running,
        ):
            reply = await running.client.post(CHAT, json=question())
            assert (reply.status_code, reply.content) == (400, body)

    play(scenario())


def test_a_client_that_does_not_read_slows_its_server_and_not_our_memory(tmp_path: Path) -> None:
    """What one side does not take the other side cannot send."""
    sent = 0
    part = chunk(event(delta("x" * 60_000)))

    async def flood(call: Call) -> None:
        nonlocal sent
        call.stream()
        while True:
            call.say(part)
            await call.writer.drain()
            sent += len(part)

    async def scenario() -> None:
        async with (
            model_server(tmp_path, flood) as server,
            proxy(tmp_path, server.route(), stall_seconds=0.3) as running,
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=1024)
            writer.write(_raw_question())
            call = await server.until_asked()
            # It is given up in the end, as it holds a slot.
            while outcome("stalled") not in await running.metrics():
                pass
            del call
            assert sent < 64 * 1024 * 1024
            writer.close()

    play(scenario())


def test_a_drain_ends_no_stream(tmp_path: Path) -> None:
    """The port is free at once, idle connections end, and what runs is answered to its last byte."""

    async def scenario() -> None:
        async with model_server(tmp_path) as server, proxy(tmp_path, server.route()) as running:
            idle_reader, idle = await asyncio.open_connection("127.0.0.1", running.port)
            idle.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            await idle_reader.readuntil(b"}")
            asked = asyncio.create_task(running.client.post(CHAT, json=question()))
            call = await server.until_asked()
            call.stream(DELTAS[0])
            draining = asyncio.create_task(running.server.drain())
            assert await idle_reader.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", running.port)
            successor = await asyncio.start_server(lambda *_: None, "127.0.0.1", running.port)
            successor.close()
            assert not draining.done()
            call.say(*map(chunk, [*DELTAS[1:], LAST, event(DONE), b""]))
            assert (await asked).content == b"".join([*DELTAS, LAST, event(DONE)])
            await draining
            idle.close()

    play(scenario())


def test_connections_are_used_again(tmp_path: Path) -> None:
    """Ten questions of one client are one connection, and the answers are in order."""

    async def scenario() -> None:
        async with model_server(tmp_path, clean) as server, proxy(tmp_path, server.route()) as running:
            request = _raw_question(close=False)
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
            for _ in range(9):
                writer.write(request)
                await reader.readuntil(b"0\r\n\r\n")
            writer.write(_raw_question())
            assert b"[DONE]" in await reader.read()
            assert len(server.calls) == 10
            writer.close()

    play(scenario())


def test_a_client_of_http_1_0_gets_the_plain_body(tmp_path: Path) -> None:
    """Without chunks, which it would not understand, and until the connection closes."""

    async def scenario() -> None:
        async with model_server(tmp_path, clean) as server, proxy(tmp_path, server.route()) as running:
            got = await running.raw(_raw_question().replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert got.endswith(b"\r\n\r\n" + b"".join([*DELTAS, LAST, event(DONE)]))

    play(scenario())


def _raw_question(*, close: bool = True) -> bytes:
    body = json.dumps(question()).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    head += "Connection: close\r\n" if close else ""
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

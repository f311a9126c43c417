"""Asking a model server that answers well, badly, or not at all."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from journeyman.core.completion import Completion, CompletionRequest, Trouble
from journeyman.workers.freeform import complete
from tests.support.scripted_server import (
    DONE,
    OK_CHUNKED,
    OK_UNTIL_CLOSE,
    ScriptedServer,
    answering,
    chunk,
    delta,
    event,
    plain,
)

REQUEST = CompletionRequest("", "smol", "", "Hi", timeout_seconds=10, stall_timeout_seconds=10)
USAGE = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
WHOLE = [delta(""), delta("Red"), delta(", blue"), delta(None, "stop"), USAGE]


def ask(
    parts: Sequence[bytes], *, hang: bool = False, request: CompletionRequest = REQUEST
) -> tuple[Completion, ScriptedServer]:
    async def exchange() -> tuple[Completion, ScriptedServer]:
        async with answering(parts, hang=hang) as server:
            asked = dataclasses.replace(request, base_url=server.base_url)
            return await asyncio.wait_for(complete(asked, "k-1"), 20), server

    return asyncio.run(exchange())


def chunked(*values: object, end: bool = True) -> list[bytes]:
    return [OK_CHUNKED, *(chunk(event(value)) for value in values), *([chunk(b"")] if end else [])]


def test_a_whole_stream_is_a_whole_answer() -> None:
    """Text, finish reason, usage and times are taken from the stream."""
    completion, server = ask(chunked(*WHOLE, DONE))
    assert (completion.text, completion.finish_reason, completion.trouble) == ("Red, blue", "stop", None)
    assert (completion.prompt_tokens, completion.completion_tokens) == (9, 3)
    assert completion.first_token_seconds is not None
    assert 0 < completion.first_token_seconds <= completion.elapsed_seconds < 10
    head, body = server.requests[0]
    assert head.startswith(b"POST /v1/chat/completions ")
    assert b"authorization: bearer k-1" in head.lower()
    assert body["stream"] is True


def test_events_may_be_cut_anywhere_and_hold_comments() -> None:
    """Keep-alive comments, CRLF line ends and events split over packets change nothing."""
    stream = b": keepalive\r\n\r\n" + b"".join(event(value) for value in [*WHOLE, DONE]).replace(
        b"\n", b"\r\n"
    )
    completion, _ = ask([OK_UNTIL_CLOSE, *(stream[i : i + 7] for i in range(0, len(stream), 7))])
    assert (completion.text, completion.trouble) == ("Red, blue", None)


@pytest.mark.parametrize("hang", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_missing_done_after_the_last_word_is_forgiven(*, hang: bool) -> None:
    """The model's own finish reason ends an answer, also when the server then keeps the connection open."""
    completion, _ = ask(chunked(*WHOLE, end=False), hang=hang)
    assert (completion.text, completion.finish_reason, completion.trouble) == ("Red, blue", "stop", None)
    assert completion.elapsed_seconds < REQUEST.timeout_seconds / 2


@pytest.mark.parametrize(
    "parts",
    [
        chunked(delta("Red"), delta(", bl"), end=False),
        chunked(delta("Red"), delta(", bl")),
        chunked(delta("Red"), delta(", bl"), DONE),
        [OK_UNTIL_CLOSE, event(delta("Red")), event(delta(", bl"))],
        [OK_CHUNKED, chunk(event(delta("Red"))), chunk(event(delta(", bl"))), b"40\r\ndata: {"],
    ],
    ids=["connection-cut", "stream-ended", "done-too-early", "http-1.0-close", "chunk-cut"],
)
def test_a_stream_without_the_last_word_is_truncated(parts: list[bytes]) -> None:
    """However politely the stream ends: without a finish reason the answer is a part, and kept as one."""
    completion, _ = ask(parts)
    assert (completion.trouble, completion.text) == (Trouble.TRUNCATED, "Red, bl")
    assert completion.message


def test_an_error_inside_a_stream_of_200_is_an_error() -> None:
    """Some servers report a failure as an event; it is not silence."""
    error = {"error": {"code": 500, "message": "context shift failed", "type": "server_error"}}
    completion, _ = ask(chunked(delta("Red"), error))
    assert (completion.trouble, completion.message) == (Trouble.SERVER_ERROR, "context shift failed")
    assert completion.text == "Red"


@pytest.mark.parametrize("garbage", ["{not json", "[1]", '"text"', '{"choices": 5}', '{"choices": [5]}'])
def test_garbage_in_the_stream_is_a_server_error(garbage: str) -> None:
    """What is no part of an answer is told as such."""
    completion, _ = ask(chunked(delta("Red"), garbage))
    assert completion.trouble is Trouble.SERVER_ERROR


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ("401 Unauthorized", Trouble.UNAUTHORIZED),
        ("403 Forbidden", Trouble.UNAUTHORIZED),
        ("400 Bad Request", Trouble.REJECTED),
        ("404 Not Found", Trouble.REJECTED),
        ("500 Internal Server Error", Trouble.SERVER_ERROR),
        ("503 Service Unavailable", Trouble.UNREACHABLE),
    ],
)
@pytest.mark.parametrize("body", [b'{"error": {"message": "because"}}', b"because", b'{"error": "because"}'])
def test_a_refusal_is_told_with_the_servers_reason(status: str, trouble: Trouble, body: bytes) -> None:
    """Each status has its meaning, and the reason is found in whatever shape it comes."""
    completion, _ = ask([plain(status, body)])
    assert completion.trouble is trouble
    assert completion.message == f"the model server answered {status[:3]}: because"


def test_nobody_listening_is_unreachable() -> None:
    """A refused connection is told with the URL."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    request = dataclasses.replace(REQUEST, base_url=f"http://127.0.0.1:{port}/v1")
    completion = asyncio.run(asyncio.wait_for(complete(request, ""), 20))
    assert completion.trouble is Trouble.UNREACHABLE
    assert str(port) in completion.message


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"timeout_seconds": 0.1}, "not done within 0.1 s"),
        ({"stall_timeout_seconds": 0.1}, "silent for 0.1 s"),
    ],
)
@pytest.mark.parametrize("parts", [[], chunked(delta("Red"), end=False)], ids=["silent", "stalled"])
def test_silence_has_an_end(limits: dict[str, float], message: str, parts: list[bytes]) -> None:
    """The task's time and the longest silence are honoured, before and within the answer."""
    request = dataclasses.replace(REQUEST, **limits)  # type: ignore[arg-type]
    completion, _ = ask(parts, hang=True, request=request)
    assert completion.trouble is Trouble.TIMEOUT
    assert message in completion.message


@pytest.mark.slow
def test_the_program_leaves_its_result_in_its_folder(tmp_path: Path) -> None:
    """It exits with 0 and a typed result also when nobody answers, and its output holds no key."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    request = dataclasses.replace(REQUEST, base_url=f"http://127.0.0.1:{port}/v1")
    (tmp_path / "request.json").write_bytes(request.to_json())
    (tmp_path / "api-key").write_bytes(b"k-secret")
    done = _run_in(tmp_path)
    assert done.returncode == 0
    result = tmp_path / "result.json"
    assert Completion.from_json(result.read_bytes()).trouble is Trouble.UNREACHABLE
    assert result.stat().st_mode & 0o777 == 0o600
    assert "k-secret" not in done.stdout + done.stderr


@pytest.mark.slow
def test_the_program_refuses_to_guess_a_request(tmp_path: Path) -> None:
    """Without a usable request there is one line, code 65, and no result."""
    (tmp_path / "api-key").write_bytes(b"k")
    (tmp_path / "request.json").write_text("{}")
    done = _run_in(tmp_path)
    assert done.returncode == 65
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "result.json").exists()


def _run_in(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "journeyman.workers.freeform"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)

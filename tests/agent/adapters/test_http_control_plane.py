"""What goes over the wire, and what becomes of replies that no healthy server gives."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.core.api_errors import error_for
from journeyman.errors import (
    ConfigError,
    ControlPlaneError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.ports import Collection, WatchEvent
from journeyman.settings import Settings
from tests.support.clock import START, FakeClock
from tests.support.plane import running_plane
from tests.support.raw_http import RawServer, Slowly, raw_server, reply

NODES = Collection("foreman.llmkube.dev", "v1alpha1", "fleetnodes")
NODE = NODES.named("mac-1")
TASKS = Collection("foreman.llmkube.dev", "v1alpha1", "agentictasks", "default")
OBJECT = json.dumps({"metadata": {"name": "mac-1"}}).encode()


def plane_for(server: RawServer | str, **settings: Any) -> HttpControlPlane:
    url = server if isinstance(server, str) else server.url
    defaults = {"state_root": Path("/nowhere"), "server": url, "request_timeout_seconds": 5}
    return HttpControlPlane(Settings(**{**defaults, **settings}), FakeClock(), version="1.2.3")


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(bounded())


async def read_watch(plane: HttpControlPlane) -> list[WatchEvent]:
    return [event async for event in plane.watch(NODES, resource_version="7", label_selector="a=b")]


def test_a_request_names_us_and_carries_the_token(tmp_path: Path) -> None:
    """Path, User-Agent, Authorization and the media type of a merge patch are as the API wants them."""
    token = tmp_path / "token"
    token.write_text("s3cret\n")

    async def scenario() -> None:
        async with raw_server(reply(OBJECT), reply(OBJECT)) as server:
            plane = plane_for(server, token_file=token)
            await plane.patch(NODE, {"status": {"phase": "Ready"}}, subresource="status")
            await plane.get(TASKS.named("a/b"))
            await plane.aclose()
        path = "/apis/foreman.llmkube.dev/v1alpha1/fleetnodes/mac-1/status"
        assert server.requests[0].startswith(f"PATCH {path} HTTP/1.1\r\n")
        assert server.header("user-agent", 0) == "journeyman/1.2.3"
        assert server.header("authorization", 0) == "Bearer s3cret"
        assert server.header("content-type", 0) == "application/merge-patch+json"
        # A name is one part of the path, whatever it holds.
        assert "/namespaces/default/agentictasks/a%2Fb " in server.requests[1]

    run(scenario())


def test_a_token_that_was_replaced_is_used_at_the_next_request(tmp_path: Path) -> None:
    """Renewal needs no restart; while the file is missing or empty the last good token serves."""
    token = tmp_path / "token"
    token.write_text("one")

    async def scenario() -> None:
        async with raw_server(*[reply(OBJECT)] * 3) as server:
            plane = plane_for(server, token_file=token)
            await plane.get(NODE)
            fresh = tmp_path / "fresh"
            fresh.write_text("two")
            fresh.replace(token)
            await plane.get(NODE)
            token.write_text("")
            await plane.get(NODE)
            await plane.aclose()
        assert [server.header("authorization", n) for n in range(3)] == [
            "Bearer one",
            "Bearer two",
            "Bearer two",
        ]

    run(scenario())


def test_a_refused_token_is_read_again_even_if_the_file_looks_unchanged(tmp_path: Path) -> None:
    """A replacement within one tick of the file system's clock is found at the first 401."""
    token = tmp_path / "token"
    token.write_text("one")

    async def scenario() -> None:
        async with raw_server(reply(b"{}", "401 Unauthorized"), reply(OBJECT)) as server:
            plane = plane_for(server, token_file=token)
            times = token.stat()
            token.write_text("two")
            os.utime(token, ns=(times.st_atime_ns, times.st_mtime_ns))
            with pytest.raises(UnauthorizedError, match="401") as caught:
                await plane.get(NODE)
            assert "token_file" in caught.value.advice
            await plane.get(NODE)
            await plane.aclose()
        assert server.header("authorization", 0) == "Bearer one"
        assert server.header("authorization", 1) == "Bearer two"

    run(scenario())


BAD_REPLIES = [
    pytest.param(reply(b"<html>log in</html>"), "a web page", id="html"),
    pytest.param(reply(b'{"metadata": '), "a broken JSON object", id="half an object"),
    pytest.param(reply(b""), "an empty body", id="empty"),
    pytest.param(reply(b"[]"), "no object", id="list"),
    pytest.param(reply(b"\x00\xff"), "instead of JSON", id="binary"),
    pytest.param(reply(b"{}", "200 OK", "Content-Encoding: gzip"), "cannot be unpacked", id="no gzip"),
    pytest.param(reply(b"", "302 Found", "Location: https://elsewhere/"), "not followed", id="redirect"),
    pytest.param(reply(b"oops", "500 Internal Server Error"), "HTTP 500", id="500"),
    pytest.param(reply(b"404 page not found", "404 Not Found"), "does not know this path", id="bare 404"),
]
NO_REPLIES = [
    pytest.param(reply(OBJECT, length=500), "no answer", id="truncated"),
    pytest.param(b"", "no answer", id="closed"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", "no answer", id="another protocol"),
    pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "no answer", id="bad chunk"),
]


@pytest.mark.parametrize(("answer", "said"), BAD_REPLIES)
def test_a_bad_reply_is_one_clear_sentence(answer: bytes, said: str) -> None:
    """A proxy, a login page or a broken server is told apart from a control plane."""

    async def scenario() -> None:
        async with raw_server(answer) as server:
            plane = plane_for(server)
            with pytest.raises(ControlPlaneError) as caught:
                await plane.get(NODE)
            await plane.aclose()
        assert said in caught.value.message
        assert "\n" not in caught.value.message
        assert not isinstance(caught.value, NotFoundError | UnreachableError)

    run(scenario())


@pytest.mark.parametrize(("answer", "said"), NO_REPLIES)
def test_no_whole_reply_is_unreachable(answer: bytes, said: str) -> None:
    """Whether the call did anything is unknown, and the error says that no answer came."""

    async def scenario() -> None:
        async with raw_server(answer, answer) as server:
            plane = plane_for(server)
            with pytest.raises(UnreachableError, match=said):
                await plane.get(NODE)
            with pytest.raises(UnreachableError, match=said):
                await read_watch(plane)
            await plane.aclose()

    run(scenario())


@pytest.mark.slow
def test_silence_ends_at_the_request_timeout() -> None:
    """A server that accepts and says nothing costs no more than the timeout."""

    async def scenario() -> None:
        async with raw_server(None, None) as server:
            plane = plane_for(server, request_timeout_seconds=0.2)
            with pytest.raises(UnreachableError, match="timed out"):
                await plane.get(NODE)
            with pytest.raises(UnreachableError, match="timed out"):
                await read_watch(plane)
            await plane.aclose()

    run(scenario())


@pytest.mark.slow
def test_a_watch_is_dead_after_a_silence_that_no_bookmark_breaks() -> None:
    """A stream whose connection died without a word is given up; without bookmarks, silence is normal."""

    async def scenario() -> None:
        line = event_line("ADDED", {})
        opening = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = f"{len(line):x}\r\n".encode() + line + b"\r\n"
        async with raw_server(
            Slowly([opening, chunk, b""]), Slowly([opening, chunk, b"0\r\n\r\n"])
        ) as server:
            plane = plane_for(server, watch_stall_seconds=0.2, request_timeout_seconds=15)
            events = plane.watch(NODES, resource_version="1")
            assert await anext(events) == WatchEvent("ADDED", {})
            with pytest.raises(UnreachableError, match="timed out"):
                await anext(events)
            quiet = plane.watch(NODES, resource_version="1", bookmarks=False)
            assert await anext(quiet) == WatchEvent("ADDED", {})
            ended = asyncio.ensure_future(anext(quiet, None))
            done, _ = await asyncio.wait({ended}, timeout=0.5)
            assert not done
            server.go_on.set()
            assert await ended is None
            await plane.aclose()
        assert "allowWatchBookmarks=false" in server.requests[1]

    run(scenario())


@pytest.mark.slow
def test_a_slow_link_may_take_longer_than_the_request_timeout() -> None:
    """Silence is what fails a request, not its length: a large body gets through if its bytes do."""

    async def scenario() -> None:
        body = json.dumps({"metadata": {"name": "a" * 200}}).encode()
        whole = reply(body)
        pieces = [whole[start : start + 20] for start in range(0, len(whole), 20)]
        async with raw_server(Slowly(pieces, pause_seconds=0.1)) as server:
            plane = plane_for(server, request_timeout_seconds=1.2)
            started = asyncio.get_running_loop().time()
            assert (await plane.get(NODE))["metadata"]["name"] == "a" * 200
            assert asyncio.get_running_loop().time() - started > 1.2
            await plane.aclose()

    run(scenario())


def test_a_large_body_goes_out_in_pieces_and_whole() -> None:
    """A result of a megabyte arrives as it was, with its length announced."""

    async def scenario() -> None:
        async with raw_server(reply(OBJECT)) as server:
            plane = plane_for(server)
            body = {"status": {"result": {"text": "x" * 1_000_000}}}
            await plane.patch(NODE, body, subresource="status")
            await plane.aclose()
        assert int(server.header("content-length")) == len(server.bodies[0])
        assert json.loads(server.bodies[0]) == body
        assert server.header("transfer-encoding") == ""

    run(scenario())


def test_a_server_that_is_not_there_is_unreachable() -> None:
    """A refused connection says so, with what to do."""

    async def scenario() -> None:
        async with raw_server() as server:
            pass
        plane = plane_for(server)
        with pytest.raises(UnreachableError, match="connection refused") as caught:
            await plane.get(NODE)
        assert caught.value.exit_code == 69
        await plane.aclose()

    run(scenario())


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, also where HTTP_PROXY is set and NO_PROXY is not."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    async def scenario() -> None:
        async with raw_server(reply(OBJECT)) as server:
            plane = plane_for(server)
            assert (await plane.get(NODE))["metadata"]["name"] == "mac-1"
            await plane.aclose()

    run(scenario())


def test_retry_after_is_handed_on() -> None:
    """The caller paces itself by what the server asked for."""

    async def scenario() -> None:
        async with raw_server(reply(b"{}", "429 Too Many Requests", "Retry-After: 12")) as server:
            plane = plane_for(server)
            with pytest.raises(ControlPlaneError) as caught:
                await plane.get(NODE)
            await plane.aclose()
        assert caught.value.retry_after_seconds == 12.0

    run(scenario())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", 0.0),
        ("12", 12.0),
        ("31536000", 600.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-1", None),
    ],
)
def test_both_forms_of_retry_after_are_understood_and_no_slip_silences_us(
    value: str, expected: float | None
) -> None:
    """A date counts from the Date of the same reply; nobody is obeyed for longer than ten minutes."""
    headers = {"retry-after": value, "date": "Thu, 01 Jan 2026 12:00:00 GMT"}
    assert error_for("GET a", 503, b"{}", headers).retry_after_seconds == expected


@pytest.mark.parametrize(("status", "proven"), [(400, False), (422, False), (413, True)])
def test_only_the_control_plane_itself_can_refuse_an_object(status: int, proven: bool) -> None:  # noqa: FBT001
    """A proxy's error page is no verdict on a result, which would be set aside for it; "too large" is."""
    error = error_for("PATCH a", status, b"<html>Bad Request</html>", {})
    assert isinstance(error, InvalidError) is proven
    said = json.dumps({"kind": "Status", "message": "no"}).encode()
    assert isinstance(error_for("PATCH a", status, said, {}), InvalidError)


@pytest.mark.parametrize(
    ("ahead_seconds", "expected"), [(0, 0.0), (1, 0.0), (-1, 0.0), (300, 300.5), (-90, -89.5)]
)
def test_the_clock_offset_comes_from_the_date_header(ahead_seconds: int, expected: float) -> None:
    """A second reply proves it; whole seconds are all a Date gives, so small offsets count as none."""
    date = format_datetime(START + timedelta(seconds=ahead_seconds), usegmt=True)

    async def scenario() -> None:
        dated = reply(OBJECT, "200 OK", f"Date: {date}")
        async with raw_server(dated, dated) as server:
            plane = plane_for(server)
            assert plane.clock_offset_seconds() == 0.0
            await plane.get(NODE)
            assert (plane.clock_offset_seconds(), plane.last_offset_seconds()) == (0.0, expected)
            await plane.get(NODE)
            assert (plane.clock_offset_seconds(), plane.last_offset_seconds()) == (expected, expected)
            await plane.aclose()

    run(scenario())


@pytest.mark.parametrize("date", ["yesterday", "", "Thu, 01 Jan 2026 99:00:00 GMT"])
def test_a_strange_date_is_no_offset(date: str) -> None:
    """A header that cannot be read changes nothing."""

    async def scenario() -> None:
        async with raw_server(reply(OBJECT, "200 OK", f"Date: {date}")) as server:
            plane = plane_for(server)
            await plane.get(NODE)
            assert plane.clock_offset_seconds() == 0.0
            await plane.aclose()

    run(scenario())


def test_a_list_that_is_none_is_refused() -> None:
    """Without items and resourceVersion no watch could go on from it."""

    async def scenario() -> None:
        async with raw_server(
            reply(b'{"items": []}'), reply(b'{"metadata": {"resourceVersion": "1"}}')
        ) as server:
            plane = plane_for(server)
            for _ in range(2):
                with pytest.raises(ControlPlaneError, match="no list"):
                    await plane.list(NODES)
            await plane.aclose()

    run(scenario())


def event_line(kind: str, changed: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": changed}, ensure_ascii=False).encode() + b"\n"


def test_a_watch_asks_for_bookmarks_from_a_version_and_ends_with_the_stream() -> None:
    """The query is Kubernetes', and an orderly end of the stream is an end, not an error."""

    async def scenario() -> None:
        # U+2028 and U+0085 end a line for str.splitlines, but not for JSON.
        odd = {"metadata": {"name": "a\u2028b\x85c"}}
        lines = event_line("ADDED", odd) + b"\n" + event_line("BOOKMARK", {}).rstrip()
        async with raw_server(reply(lines)) as server:
            plane = plane_for(server, watch_seconds=60)
            events = await read_watch(plane)
            await plane.aclose()
        assert events == [WatchEvent("ADDED", odd), WatchEvent("BOOKMARK", {})]
        head = server.requests[0]
        for part in ("watch=true", "allowWatchBookmarks=true", "resourceVersion=7", "timeoutSeconds=60"):
            assert part in head
        assert "labelSelector=a%3Db" in head

    run(scenario())


GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        pytest.param(reply(event_line("ERROR", GONE)), ExpiredError, "too old", id="410 in the stream"),
        pytest.param(reply(json.dumps(GONE).encode(), "410 Gone"), ExpiredError, "too old", id="410"),
        pytest.param(reply(b"<html>\n"), ControlPlaneError, "a web page", id="html"),
        pytest.param(reply(b'{"type": "ADDED", "obj'), ControlPlaneError, "broken JSON", id="half a line"),
        pytest.param(reply(b'{"type": "ADDED"}\n'), ControlPlaneError, "no watch event", id="no object"),
        pytest.param(reply(b"{}", "403 Forbidden"), UnauthorizedError, "403", id="403"),
    ],
)
def test_a_watch_raises_our_errors_only(answer: bytes, kind: type[ControlPlaneError], said: str) -> None:
    """Not even an iterator lets another exception out."""

    async def scenario() -> None:
        async with raw_server(answer) as server:
            plane = plane_for(server)
            with pytest.raises(kind, match=said):
                await read_watch(plane)
            await plane.aclose()

    run(scenario())


def test_a_watch_cut_in_the_middle_gives_what_came_and_then_an_error() -> None:
    """Events before the cut count; the cut is no orderly end."""

    async def scenario() -> None:
        async with raw_server(reply(event_line("ADDED", {}), length=9999)) as server:
            plane = plane_for(server)
            events = plane.watch(NODES, resource_version="1")
            assert await anext(events) == WatchEvent("ADDED", {})
            with pytest.raises(UnreachableError):
                await anext(events)
            await plane.aclose()

    run(scenario())


@pytest.mark.slow
def test_tls_is_trusted_with_the_ca_file_and_explained_without(tmp_path: Path) -> None:
    """The plane's own CA makes its certificate good; without it the error names the setting."""
    with running_plane(tmp_path, tls=True) as running:

        async def scenario() -> None:
            trusting = plane_for(
                running.url, token_file=running.token_file, ca_file=running.data_dir / "ca.crt"
            )
            assert (await trusting.list(NODES)).items == []
            await trusting.aclose()
            stranger = plane_for(running.url, token_file=running.token_file)
            with pytest.raises(UnreachableError, match="is not trusted") as caught:
                await stranger.list(NODES)
            assert "ca_file" in caught.value.advice
            plain = plane_for(running.url.replace("https:", "http:"), token_file=running.token_file)
            with pytest.raises(ControlPlaneError):
                await plain.list(NODES)
            await plain.aclose()
            await stranger.aclose()

        run(scenario())


@pytest.mark.slow
def test_tls_with_a_server_that_speaks_none_is_explained(tmp_path: Path) -> None:
    """Https to a plain port is a mistake of the URL, and the error says so."""
    with running_plane(tmp_path) as running:

        async def scenario() -> None:
            plane = plane_for(running.url.replace("http:", "https:"))
            with pytest.raises(UnreachableError, match="no TLS with") as caught:
                await plane.list(NODES)
            assert "https only where" in caught.value.advice
            await plane.aclose()

        run(scenario())


@pytest.mark.slow
def test_a_wrong_token_is_exit_code_77(tmp_path: Path) -> None:
    """The real plane refuses it, and the error says which setting to look at."""
    wrong = tmp_path / "token"
    wrong.write_text("wrong")
    with running_plane(tmp_path) as running:

        async def scenario() -> None:
            plane = plane_for(running.url, token_file=wrong)
            with pytest.raises(UnauthorizedError) as caught:
                await plane.list(NODES)
            assert caught.value.exit_code == 77
            assert "token_file" in caught.value.advice
            await plane.aclose()

        run(scenario())


def test_nothing_is_built_without_a_server() -> None:
    """A missing server is a mistake of the settings, with what to set."""
    with pytest.raises(ConfigError, match="no control plane is set") as caught:
        HttpControlPlane(Settings(state_root=Path("/nowhere")), FakeClock(), version="0")
    assert "JOURNEYMAN_SERVER" in caught.value.advice


@pytest.mark.parametrize(
    ("setting", "content", "said"),
    [
        ("token_file", None, "cannot be read: No such file"),
        ("token_file", b"", "does not hold one token"),
        ("token_file", b"two words", "does not hold one token"),
        ("token_file", b"two\nlines", "does not hold one token"),
        ("token_file", "naïve".encode(), "does not hold one token"),
        ("token_file", b"\xff\xfe", "is no text"),
        ("ca_file", None, "cannot be read: No such file"),
        ("ca_file", b"not PEM", "holds no certificate"),
    ],
)
def test_a_bad_credential_file_is_found_before_anything_starts(
    tmp_path: Path, setting: str, content: bytes | None, said: str
) -> None:
    """Token and CA are read when the adapter is built, and a mistake there is exit code 78."""
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        plane_for("https://plane", **{setting: file})

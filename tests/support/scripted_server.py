"""A real HTTP server on loopback that answers with exactly the bytes a test says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

OK_CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OK_UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = "[DONE]"


@dataclass
class ScriptedServer:
    """Where it listens, and what it was asked."""

    base_url: str = ""
    requests: list[tuple[bytes, dict[str, Any]]] = field(default_factory=list)


@contextlib.asynccontextmanager
async def answering(
    parts: Sequence[bytes], *, hang: bool = False, later: Sequence[bytes] | None = None
) -> AsyncIterator[ScriptedServer]:
    """Serves each request the same parts, or those `later` from the second on, and closes.

    With `hang` it keeps the connection open.
    """
    server = ScriptedServer()
    released = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if b"ontent-" in line and b"ength" in line
        )
        server.requests.append((head, json.loads(await reader.readexactly(length))))
        for part in parts if later is None or len(server.requests) == 1 else later:
            writer.write(part)
            await writer.drain()
        if hang:
            await released.wait()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.base_url = f"http://127.0.0.1:{port}/v1"
    async with listener:
        yield server
        released.set()


def event(value: object) -> bytes:
    """One server-sent event."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; an empty one ends it."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def delta(content: str | None = None, finish_reason: str | None = None) -> dict[str, Any]:
    """A part of an answer, as the OpenAI API streams it."""
    change = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": change, "finish_reason": finish_reason}]}


def plain(status: str, body: bytes) -> bytes:
    """A whole response that is no stream."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

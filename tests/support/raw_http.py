"""An HTTP server that answers with the very bytes of a test, for replies that no real server gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Slowly:
    """A reply in parts.

    Attributes:
        parts: the bytes; before the last part the server waits until the test lets it go on.
        pause_seconds: between two parts, in place of that wait.
    """

    parts: list[bytes]
    pause_seconds: float | None = None


@dataclass
class RawServer:
    """What it will answer, and what it was asked.

    Attributes:
        replies: the bytes of the next replies, first come first served; None means silence.
        requests: the heads of the requests so far.
        bodies: their bodies, where their length was announced.
        go_on: lets a reply in parts go on to its last one.
        url: its address.
    """

    replies: list[bytes | Slowly | None] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    def header(self, name: str, request: int = -1) -> str:
        """One header of a request, or an empty string."""
        for line in self.requests[request].split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return ""


@asynccontextmanager
async def raw_server(*replies: bytes | Slowly | None) -> AsyncIterator[RawServer]:
    """Serves on an ephemeral port of 127.0.0.1; each connection gets one reply and is closed."""
    state = RawServer(list(replies))
    clients: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            state.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            state.bodies.append(await reader.readexactly(int(state.header("content-length") or 0)))
            reply = state.replies.pop(0)
            if reply is None:
                await reader.read()
            elif isinstance(reply, Slowly):
                await _send_slowly(reply, state, writer)
            else:
                writer.write(reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(serve(reader, writer))
        clients.add(client)
        client.add_done_callback(clients.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


async def _send_slowly(reply: Slowly, state: RawServer, writer: asyncio.StreamWriter) -> None:
    for number, part in enumerate(reply.parts, 1):
        if reply.pause_seconds is not None:
            await asyncio.sleep(reply.pause_seconds)
        elif number == len(reply.parts):
            await state.go_on.wait()
        writer.write(part)
        await writer.drain()


def reply(body: bytes, status: str = "200 OK", *headers: str, length: int | None = None) -> bytes:
    """The bytes of a reply; `length` lies about the body's."""
    size = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}", f"Content-Length: {size}", "Connection: close", *headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body

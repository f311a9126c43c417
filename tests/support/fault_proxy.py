"""A bad network: an HTTP proxy on loopback between agents and a real plane, which follows a seeded schedule.

The requests are the agents' own and the replies the plane's own, but for what the schedule does to them.
Which request meets which fault depends on the order in which they come; the order of the faults does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import format_datetime
from enum import StrEnum

from journeyman_plane.ports import Clock

_HTML = b"<html><body>Please log in to this network.</body></html>"


class Fault(StrEnum):
    """What may happen to one request."""

    NONE = "none"
    LATENCY = "latency"
    RESET = "reset"
    LOST_REQUEST = "black hole"
    LOST_REPLY = "black hole after it was served"
    CUT_REPLY = "cut in the middle of the response"
    NO_REPLY = "closed before the response"
    TOO_MANY = "429"
    BROKEN = "500"
    BUSY = "503"
    HTML = "HTML with 200"
    HALF_JSON = "truncated JSON"
    SKEWED_DATE = "skewed Date"
    GONE = "410"


_OF_REQUESTS = [fault for fault in Fault if fault not in {Fault.NONE, Fault.GONE}]
_OF_WATCHES = [
    Fault.RESET, Fault.LOST_REQUEST, Fault.LOST_REPLY, Fault.CUT_REPLY, Fault.NO_REPLY, Fault.TOO_MANY,
    Fault.BROKEN, Fault.BUSY, Fault.HTML, Fault.HALF_JSON, Fault.GONE,
]  # fmt: skip
# An agent waits for its request timeout in these, so there are few of them.
_SLOW = {Fault.LOST_REQUEST, Fault.LOST_REPLY}
_REFUSALS = {Fault.TOO_MANY, Fault.BROKEN, Fault.BUSY, Fault.HTML, Fault.GONE}
_STATUS_LINES = {
    Fault.TOO_MANY: "429 Too Many Requests",
    Fault.BROKEN: "500 Internal Server Error",
    Fault.BUSY: "503 Service Unavailable",
    Fault.GONE: "410 Gone",
}


class Schedule:
    """The faults of one run, in the order in which requests meet them.

    Args:
        seed: two schedules of one seed are the same.
        requests: after so many requests, and a tenth of that of watches, the network is sound again.
    """

    def __init__(self, seed: int, *, requests: int = 120) -> None:
        self.random = random.Random(seed)
        share = self.random.uniform(0.1, 0.6)
        self._requests = self._draw(requests, share, _OF_REQUESTS, slow=3)
        self._watches = self._draw(requests // 10, max(share, 0.5), _OF_WATCHES, slow=1)

    def next(self, *, watch: bool) -> Fault:
        """What happens to the next request."""
        return next(self._watches if watch else self._requests, Fault.NONE)

    def _draw(self, count: int, share: float, kinds: Sequence[Fault], *, slow: int) -> Iterator[Fault]:
        faults: list[Fault] = []
        for _ in range(count):
            fault = self.random.choice(kinds) if self.random.random() < share else Fault.NONE
            if fault in _SLOW:
                slow -= 1
            faults.append(Fault.NONE if fault in _SLOW and slow < 0 else fault)
        return iter(faults)


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    data: bytes

    @property
    def is_watch(self) -> bool:
        return b"watch=true" in self.data.split(b"\r\n", 1)[0]


@dataclass
class Upstream:
    """The connection to the plane that belongs to one connection of a client."""

    host: str
    port: int
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def ask(self, request: Request) -> tuple[bytes, asyncio.StreamReader]:
        """Sends the request; returns the head of the response, and where its body comes from."""
        if self.reader is None or self.writer is None or self.reader.at_eof():
            self.close()
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        self.writer.write(request.data)
        await self.writer.drain()
        return await self.reader.readuntil(b"\r\n\r\n"), self.reader

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


@dataclass
class FaultProxy:
    """Where it listens, and what it has done so far.

    Attributes:
        host: of the plane.
        port: of the plane.
        schedule: what happens to requests.
        clock: the plane's, which the Date of each reply shows.
        url: where agents find it.
        done: how often each fault has happened.
        cut: while set, nothing passes in either direction, and nobody is told.
    """

    host: str
    port: int
    schedule: Schedule
    clock: Clock
    url: str = ""
    done: dict[Fault, int] = field(default_factory=dict)
    cut: bool = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, to its end."""
        upstream = Upstream(self.host, self.port)
        try:
            while await self._exchange(await _read_request(reader), reader, writer, upstream):
                pass
        except (OSError, EOFError, asyncio.IncompleteReadError):
            pass
        finally:
            upstream.close()
            writer.close()

    async def _exchange(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: Upstream
    ) -> bool:
        """Serves one request; returns whether the connection goes on."""
        fault = self.schedule.next(watch=request.is_watch)
        self.done[fault] = self.done.get(fault, 0) + 1
        if self.cut:
            fault = Fault.LOST_REQUEST
        if fault in {Fault.RESET, Fault.LOST_REQUEST, *_REFUSALS}:
            await self._fail(fault, request, reader, writer, upstream)
            return False
        if fault is Fault.LATENCY:
            await asyncio.sleep(self.schedule.random.uniform(0.05, 5))
        head, source = await upstream.ask(request)
        if b"transfer-encoding: chunked" in head.lower():
            return await self._stream(fault, head, source, reader, writer)
        body = await source.readexactly(_length(head))
        if fault is Fault.LOST_REPLY:
            await reader.read()
            return False
        writer.write(self._spoilt(fault, head, body))
        await writer.drain()
        return fault not in {Fault.CUT_REPLY, Fault.NO_REPLY}

    async def _fail(
        self,
        fault: Fault,
        request: Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: Upstream,
    ) -> None:
        """The request gets no answer of the plane's."""
        if fault is Fault.RESET:
            _reset(writer)
        elif fault is Fault.LOST_REQUEST:
            await reader.read()
        else:
            if fault is Fault.BROKEN and not request.is_watch and self.schedule.random.random() < 0.5:
                # It was served all the same: so does a gateway whose patience ends too early.
                head, source = await upstream.ask(request)
                await source.readexactly(_length(head))
            writer.write(self._refusal(fault))
            await writer.drain()

    async def _stream(
        self,
        fault: Fault,
        head: bytes,
        source: asyncio.StreamReader,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Relays a watch; a fault strikes after some of its events."""
        writer.write(head)
        left = self.schedule.random.randrange(12)
        while True:
            chunk = await _read_chunk(source)
            if self.cut:
                await reader.read()
                return False
            if fault is not Fault.NONE and left == 0:
                if fault is Fault.HALF_JSON:
                    writer.write(_chunk(chunk[: len(chunk) // 2]) + _chunk(b""))
                    await writer.drain()
                elif fault is Fault.CUT_REPLY:
                    writer.write(chunk[: len(chunk) // 2])
                    await writer.drain()
                elif fault is Fault.LOST_REPLY:
                    # The stream is dead and looks alive: nobody closes it but the client.
                    await reader.read()
                return False
            left -= 1
            writer.write(chunk)
            await writer.drain()
            if chunk == b"0\r\n\r\n":
                return True

    def _refusal(self, fault: Fault) -> bytes:
        chance = self.schedule.random
        if fault is Fault.HTML:
            return _reply("200 OK", _HTML, "Content-Type: text/html")
        status = _STATUS_LINES[fault]
        code = int(status.split()[0])
        retry = (
            [f"Retry-After: {chance.choice((0, 1, 5, 30))}"] if fault in {Fault.TOO_MANY, Fault.BUSY} else []
        )
        if fault is Fault.GONE:
            gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            if chance.random() < 0.5:
                line = json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n"
                return _reply("200 OK", line)
            return _reply(status, json.dumps(gone).encode())
        if chance.random() < 0.5:
            return _reply(status, _HTML, *retry)
        body = {"kind": "Status", "code": code, "message": "the schedule says so"}
        return _reply(status, json.dumps(body).encode(), *retry)

    def _spoilt(self, fault: Fault, head: bytes, body: bytes) -> bytes:
        """The plane's reply after what happened to it."""
        match fault:
            case Fault.NO_REPLY:
                return b""
            case Fault.CUT_REPLY:
                whole = head + body
                return whole[: self.schedule.random.randrange(1, len(whole))]
            case Fault.HALF_JSON:
                return _reply("200 OK", body[: len(body) // 2])
            case Fault.SKEWED_DATE:
                seconds = self.schedule.random.choice((-1, 1)) * self.schedule.random.uniform(100, 9000)
                return self._dated(head, timedelta(seconds=seconds)) + body
        return self._dated(head) + body

    def _dated(self, head: bytes, skew: timedelta = timedelta()) -> bytes:
        date = format_datetime(self.clock.now() + skew, usegmt=True)
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"date:")]
        return b"\r\n".join([lines[0], f"Date: {date}".encode(), *lines[1:]])


@asynccontextmanager
async def fault_proxy(upstream_url: str, schedule: Schedule, clock: Clock) -> AsyncIterator[FaultProxy]:
    """A proxy in front of a plane that speaks plain http on loopback; it ends with all that it holds."""
    host, _, port = upstream_url.rpartition("//")[2].partition(":")
    proxy = FaultProxy(host, int(port), schedule, clock)
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(proxy.serve(reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = await reader.readuntil(b"\r\n\r\n")
    return Request(head + await reader.readexactly(_length(head)))


async def _read_chunk(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readuntil(b"\r\n")
    return line + await reader.readexactly(int(line, 16) + 2)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def _reply(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with a RST, as a firewall or a crashed peer does."""
    held = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()

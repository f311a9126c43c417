"""One HTTP/1.1 connection: h11's state machine on an asyncio transport, for either side.

h11 and nothing more: one token costs 30 µs of it on both sides together, so a faster parser of our own
would save a thousandth of a core at the speed of real models.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import h11

LONGEST_HEAD_BYTES = 64 * 1024
# How much may lie here unread before the other side is slowed down.
UNREAD_BYTES = 256 * 1024


class Wire(asyncio.Protocol):
    """One connection.

    Args:
        role: h11.SERVER towards a client, h11.CLIENT towards a model server.
        opened: called when it is there.
        closed: called when it is gone, whoever ended it.
    """

    def __init__(
        self,
        role: Any,
        *,
        opened: Callable[[Wire], None] = lambda _: None,
        closed: Callable[[Wire], None] = lambda _: None,
    ) -> None:
        self.h11 = h11.Connection(role, max_incomplete_event_size=LONGEST_HEAD_BYTES)
        self.is_gone = False
        self._opened = opened
        self._closed = closed
        self._fresh = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._unread = 0
        self._queued = b""
        self._is_deaf = False
        self._transport: asyncio.Transport | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._unread += len(data)
        if self._unread > UNREAD_BYTES:
            self.transport.pause_reading()
        self.h11.receive_data(data)
        self._fresh.set()

    def eof_received(self) -> None:
        if self._is_deaf:
            return
        # Not asked to stay half open: who says no more does not listen either, as for most servers.
        self.h11.receive_data(b"")
        self._fresh.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_gone = True
        self._fresh.set()
        self._writable.set()
        self._closed(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # What we call.

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None, "it was never opened"
        return self._transport

    @property
    def source(self) -> str:
        """The address of the other side; empty where it has gone already."""
        peer = self.transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    async def until_begun(self) -> None:
        """Returns once the other side has said something that was not received yet, or has gone."""
        while not self.is_gone and self.h11.trailing_data == (b"", False):
            self._fresh.clear()
            await self._fresh.wait()

    async def receive(self, flush: Wire | None = None) -> Any:
        """The next event of h11.

        Args:
            flush: the wire whose queue is flushed before this one waits for its other side.

        Raises:
            h11.RemoteProtocolError: what the other side said is no HTTP, or its end came too early.
            ConnectionResetError: the connection is gone.
        """
        while True:
            event = self.h11.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self.is_gone:
                raise ConnectionResetError("the connection is gone")
            if self._unread > UNREAD_BYTES:
                self.transport.resume_reading()
            self._unread = 0
            self._fresh.clear()
            if flush is not None:
                flush.flush()
            await self._fresh.wait()

    def queue(self, *events: Any) -> None:
        """Gets events of h11 ready to be sent: what goes together costs one system call."""
        for event in events:
            self._queued += self.h11.send(event) or b""

    def flush(self) -> None:
        """Sends what is queued; bytes for somebody who has gone are dropped."""
        data, self._queued = self._queued, b""
        if data and not self.is_gone:
            self.transport.write(data)

    def send(self, *events: Any) -> None:
        """Sends events of h11 now."""
        self.queue(*events)
        self.flush()

    @property
    def is_full(self) -> bool:
        """Whether the other side has not taken enough of what was sent."""
        return not self._writable.is_set()

    async def drain(self) -> None:
        """Returns once the other side has taken enough of what was sent."""
        await self._writable.wait()

    async def linger(self, seconds: float) -> None:
        """Ignores what still comes until the other side has closed: so it gets to read our last word."""
        self._is_deaf = True
        if self.is_gone:
            return
        self.transport.resume_reading()
        self.transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.is_gone:
                    self._fresh.clear()
                    await self._fresh.wait()

    def close(self) -> None:
        """Ends the connection once everything has been sent."""
        self.transport.close()

    def abort(self) -> None:
        """Ends the connection now."""
        self.transport.abort()


async def connect(host: str, port: int) -> Wire:
    """Opens a connection to a model server.  Raises OSError."""
    _, wire = await asyncio.get_running_loop().create_connection(lambda: Wire(h11.CLIENT), host, port)
    return wire

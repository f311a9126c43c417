"""The proxy in the test's own loop, with model servers that do exactly as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from journeyman.core.proxy.config import Keys, ProxyConfig
from journeyman.core.proxy.routes import Route, RouteState, routes_to_json
from journeyman.proxy.server import ProxyServer
from journeyman_updater.contract import write_durably
from tests.support.scripted_server import OK_CHUNKED, chunk

KEY = "proxy-key"
REACH_KEY = "key-for-elsewhere"
SERVER_KEY = "server-key"
DEADLINE_SECONDS = 30.0


@dataclass
class Proxy:
    """A proxy that listens.

    Attributes:
        server: the proxy.
        base_url: with its `/v1`.
        client: an HTTP client with its key.
        folder: where its routes and keys lie.
        reach_port: where it listens for other machines; 0 if it does not.
    """

    server: ProxyServer
    base_url: str
    client: httpx.AsyncClient
    folder: Path
    reach_port: int = 0

    def set_routes(self, *routes: Route) -> None:
        """Replaces the routes, as the agent does."""
        write_durably(self.folder / "routes.json", routes_to_json(routes))

    @property
    def port(self) -> int:
        port = httpx.URL(self.base_url).port
        assert port is not None
        return port

    async def metrics(self) -> str:
        return (await self.client.get(self.base_url.removesuffix("/v1") + "/metrics")).text

    async def raw(self, request: bytes) -> bytes:
        """All that comes back for these very bytes, until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(request)
            return await reader.read()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def proxy(folder: Path, *routes: Route, **limits: Any) -> AsyncIterator[Proxy]:
    """A proxy on a free port.

    Args:
        folder: for its files.
        routes: its first routes.
        limits: fields of ProxyConfig.
    """
    keys = Keys(KEY.encode(), REACH_KEY.encode())
    server = ProxyServer(ProxyConfig(**limits), keys, folder / "routes.json")
    url = f"http://127.0.0.1:{await server.listen(0)}/v1"
    headers = {"Authorization": f"Bearer {KEY}"}
    # Without the certificates of the world, which take longer to load than all the rest.
    async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, verify=False) as client:
        client.timeout = httpx.Timeout(20)
        running = Proxy(server, url, client, folder)
        if limits.get("reach"):
            running.reach_port = await server.be_reachable()
        running.set_routes(*routes)
        try:
            yield running
        finally:
            await client.aclose()
            async with asyncio.timeout(DEADLINE_SECONDS):
                await server.drain()


@dataclass
class Call:
    """One request that a model server got, and its hand on the connection.

    Attributes:
        head: the request line and the headers.
        body: of the request.
        gone: set when the other side has closed the connection.
    """

    head: str
    body: bytes
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def say(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    def stream(self, *events: bytes) -> None:
        """Begins a chunked stream with these events."""
        self.say(OK_CHUNKED, *map(chunk, events))


@dataclass
class ModelServer:
    """A model server under the control of a test.

    Attributes:
        calls: all requests so far.
        folder: where its key lies.
    """

    folder: Path
    base_url: str = ""
    calls: list[Call] = field(default_factory=list)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def route(self, model: str = "tiny", **fields: Any) -> Route:
        key_file = self.folder / "server-key"
        key_file.write_text(SERVER_KEY)
        return Route(model, RouteState.READY, self.base_url, str(key_file), **fields)

    async def until_asked(self, times: int = 1) -> Call:
        """The last of so many requests, once they are there."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.calls) >= times)
        return self.calls[times - 1]


Answer = Callable[[Call], Awaitable[None] | None]


@contextlib.asynccontextmanager
async def model_server(folder: Path, answer: Answer = lambda _: None) -> AsyncIterator[ModelServer]:
    """A model server on a free port; `answer` is called with each request, and the connection stays open."""
    server = ModelServer(folder)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
            call = Call(head, await reader.readexactly(int(lengths[0].split(":")[1])), writer)
            async with server._arrived:
                server.calls.append(call)
                server._arrived.notify_all()
            answered = answer(call)
            if answered is not None:
                await answered
            with contextlib.suppress(ConnectionError):
                await reader.read()
            call.gone.set()
        writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    server.base_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()


def play(scenario: Coroutine[Any, Any, None]) -> None:
    """Runs a scenario, bounded."""
    asyncio.run(asyncio.wait_for(scenario, DEADLINE_SECONDS))


def question(model: str = "tiny", **fields: Any) -> dict[str, Any]:
    """The body of a streamed chat."""
    return {"model": model, "stream": True, "messages": [{"role": "user", "content": "hi"}], **fields}

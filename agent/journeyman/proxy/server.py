"""The listening side: connections, keys, limits, what the proxy answers by itself, and the drain."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import h11

from journeyman.core.proxy.config import LISTEN_HOST, NO_NEWS_SECONDS, WANTED_PATH, Keys, ProxyConfig
from journeyman.core.proxy.figures import Ending, Figures, Outcome
from journeyman.core.proxy.reach import Seen
from journeyman.core.proxy.refusal import RefusalError
from journeyman.core.proxy.request import API, Body, Target
from journeyman.core.proxy.routes import Route
from journeyman.proxy.door import Door, Load, ReachDoor
from journeyman.proxy.held import Held
from journeyman.proxy.log import tell
from journeyman.proxy.relay import BrokenReplyError, Relay
from journeyman.proxy.route_table import RouteTable
from journeyman.proxy.turns import QueueFullError, Turns
from journeyman.proxy.upstream import RETRY_AFTER_SECONDS, Asking, Upstreams
from journeyman.proxy.wire import Wire

JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4"
MODELS = f"{API}/models"
# How long a client that was refused may go on talking: closing at once would tear our answer from its hands.
LINGER_SECONDS = 1.0


class ProxyServer:
    """One proxy.

    Args:
        config: its limits.
        keys: what clients have to show.
        routes: the file that says which model answers where.
    """

    def __init__(self, config: ProxyConfig, keys: Keys, routes: Path) -> None:
        self._config = config
        self._keys = keys
        self._table = RouteTable(routes)
        self._held = Held(self._table)
        self._upstreams = Upstreams(self._table, config.hold_seconds, config.stall_seconds, self._held.change)
        self._turns: dict[str, Turns] = {}
        self._figures = Figures()
        self._clients: dict[Wire, asyncio.Task[None]] = {}
        self._idle: set[Wire] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._draining = False
        self._listeners: list[asyncio.Server] = []

    async def listen(self, port: int) -> int:
        """Begins to serve on a port of 127.0.0.1 and returns it; 0 takes a free one.  Raises OSError."""
        return await self._listen(LISTEN_HOST, port, Door(self._config, self._keys.here, self._table))

    async def be_reachable(self) -> int:
        """Begins to serve other machines, too, as the configuration says, and returns the port.

        Raises OSError: the address is not there, or its port is taken.
        """
        reach = self._config.reach
        assert reach is not None, "nobody asked for it"
        door = ReachDoor(self._config, reach, self._keys.elsewhere, self._table)
        return await self._listen(reach.address, reach.port, door)

    async def _listen(self, host: str, port: int, door: Door) -> int:
        def connection() -> Wire:
            return Wire(h11.SERVER, opened=lambda wire: self._opened(wire, door), closed=self._gone)

        listener = await asyncio.get_running_loop().create_server(connection, host, port, backlog=512)
        self._listeners.append(listener)
        taken: int = listener.sockets[0].getsockname()[1]
        return taken

    async def drain(self) -> None:
        """Takes nothing new, frees its ports at once, and returns when every request has been answered."""
        self._draining = True
        self._held.close()
        for listener in self._listeners:
            listener.close()
        for wire in list(self._idle):
            wire.close()
        await self._empty.wait()

    # Connections.

    def _opened(self, wire: Wire, door: Door) -> None:
        if not door.let_in(wire):
            wire.abort()
            return
        self._empty.clear()
        task = asyncio.get_running_loop().create_task(self._serve(wire, door))
        self._clients[wire] = task
        task.add_done_callback(lambda done: self._served(wire, door, done))

    def _gone(self, wire: Wire) -> None:
        # Ending the task is what cancels its question at the model server.
        task = self._clients.get(wire)
        if task is not None:
            task.cancel()

    def _served(self, wire: Wire, door: Door, task: asyncio.Task[None]) -> None:
        self._clients.pop(wire, None)
        door.left(wire)
        self._idle.discard(wire)
        if not self._clients:
            self._empty.set()
        if not task.cancelled() and task.exception() is not None:
            tell("request_failed", error=repr(task.exception()))
            wire.abort()

    async def _serve(self, wire: Wire, door: Door) -> None:
        """The life of one connection."""
        while not self._draining:
            self._idle.add(wire)
            try:
                async with asyncio.timeout(self._config.head_seconds):
                    await wire.until_begun()
                async with asyncio.timeout(door.head_seconds):
                    event = await wire.receive()
            except (TimeoutError, ConnectionError):
                break
            except h11.RemoteProtocolError as error:
                await self._refuse(wire, RefusalError(error.error_status_hint, "bad_request", str(error)))
                break
            finally:
                self._idle.discard(wire)
            if not isinstance(event, h11.Request) or not await self._answered(wire, door, event):
                break
            await _skip_body(wire)
            if wire.h11.our_state is not h11.DONE or wire.h11.their_state is not h11.DONE:
                break
            wire.h11.start_next_cycle()
        wire.close()

    async def _answered(self, wire: Wire, door: Door, request: h11.Request) -> bool:
        """Answers one request.  Returns whether the connection may go on."""
        try:
            await self._answer(wire, door, request)
        except RefusalError as refusal:
            await self._refuse(wire, refusal)
        except BrokenReplyError:
            return False
        except (h11.RemoteProtocolError, ConnectionError, TimeoutError) as error:
            tell("request_broke_off", error=type(error).__name__)
            return False
        return True

    async def _refuse(self, wire: Wire, refusal: RefusalError) -> None:
        if wire.h11.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        extra = (
            {} if refusal.retry_after_seconds is None else {"Retry-After": str(refusal.retry_after_seconds)}
        )
        if refusal.status == 401:  # noqa: PLR2004
            extra["WWW-Authenticate"] = "Bearer"
        _reply(wire, refusal.status, refusal.body(), JSON, extra)
        if wire.h11.their_state is h11.ERROR:
            await wire.linger(LINGER_SECONDS)

    # Requests.

    async def _answer(self, wire: Wire, door: Door, request: h11.Request) -> None:
        target = Target.of(request.target)
        if target.path == "/health":
            _require_method(request, b"GET")
            _reply(wire, 200, b'{"status":"ok"}', JSON, {})
            return
        door.check_key(request.headers)
        door.check_path(target)
        if self._draining:
            raise RefusalError(503, "stopping", "this proxy stops; try again", RETRY_AFTER_SECONDS)
        if target.path == WANTED_PATH:
            _require_method(request, b"GET")
            wanted = await self._held.wanted(NO_NEWS_SECONDS)
            _reply(wire, 200, json.dumps({"models": wanted}).encode(), JSON, {})
            return
        own = self._own_answer(target.path, door.seen(request.headers))
        if own is not None:
            _require_method(request, b"GET")
            body, kind = own
            _reply(wire, 200, body, kind, {})
            return
        if not target.path.startswith(f"{API}/"):
            raise RefusalError(404, "unknown_path", "there is no such path here; the API is below /v1")
        _require_method(request, b"POST")
        with door.carrying() as load:
            await self._pass_on(wire, door, request, target, load)

    def _own_answer(self, path: str, seen: Seen) -> tuple[bytes, str] | None:
        if path == "/metrics":
            return self._metrics(), PROMETHEUS
        if path == MODELS:
            listed = [_shown(route) for route in seen.routes.values()]
            return json.dumps({"object": "list", "data": listed}).encode(), JSON
        if path.startswith(f"{MODELS}/"):
            name = path.removeprefix(f"{MODELS}/")
            route = seen.routes.get(name)
            if route is None:
                raise RefusalError(404, "model_not_found", f"no model {name!r} is served here")
            return json.dumps(_shown(route)).encode(), JSON
        return None

    async def _pass_on(
        self, wire: Wire, door: Door, request: h11.Request, target: Target, load: Load
    ) -> None:
        async with asyncio.timeout(door.body_seconds):
            body = Body.of(await self._body_of(wire, request, load))
        headers = list(request.headers)
        asking = Asking(request.method, target, headers, body, lambda: door.seen(headers))
        arrived, route = asyncio.get_running_loop().time(), asking.route()
        turns, model = self._turns_at(route), route.model
        try:
            await turns.take()
        except QueueFullError as error:
            self._figures.add(model, Ending(Outcome.REFUSED))
            seconds = self._figures.retry_after_seconds(model, turns.waiting, turns.running)
            raise RefusalError(
                429, "queue_full", f"{turns.waiting} requests wait for {model} already; try again", seconds
            ) from error
        try:
            await self._with_turn(wire, asking, model, arrived)
        finally:
            turns.give()

    async def _with_turn(self, wire: Wire, asking: Asking, model: str, arrived: float) -> None:
        try:
            reply = await self._upstreams.ask(asking, arrived)
        except RefusalError:
            self._figures.add(model, Ending(Outcome.REFUSED))
            raise
        except asyncio.CancelledError:
            self._figures.add(model, Ending(Outcome.CLIENT_GONE))
            raise
        relay = Relay(
            wire, reply, asking.target.path, model, self._config.stall_seconds, self._config.tail_seconds
        )
        outcome = Outcome.CLIENT_GONE
        try:
            outcome = await relay.run()
        except BrokenReplyError as broken:
            outcome = broken.outcome
            raise
        finally:
            # Whatever the server still has to say about it, nobody listens.
            reply.wire.abort()
            self._figures.add(model, relay.ending(outcome, reply.passed_on_at - arrived))

    async def _body_of(self, wire: Wire, request: h11.Request, load: Load) -> bytes:
        limit, headers = self._config.body_limit_bytes, dict(request.headers)
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # RFC 9112 §6.3: whoever says both means to be understood in two ways.
            raise RefusalError(400, "bad_request", "the length of the body is told in two ways")
        size, parts = int(headers.get(b"content-length", b"0")), list[bytes]()
        if size <= limit:
            if wire.h11.they_are_waiting_for_100_continue:
                wire.send(h11.InformationalResponse(status_code=100, headers=[]))
            size = 0
        while size <= limit:
            async with asyncio.timeout(self._config.head_seconds):
                event = await wire.receive()
            if not isinstance(event, h11.Data):
                return b"".join(parts)
            parts.append(bytes(event.data))
            size += len(parts[-1])
            load.add(len(parts[-1]))
        raise RefusalError(413, "body_too_large", f"the body is larger than {limit} bytes")

    def _turns_at(self, route: Route) -> Turns:
        turns = self._turns.setdefault(route.model, Turns(self._config.queue_limit))
        turns.set_slots(route.slots)
        return turns

    # Figures.

    def _metrics(self) -> bytes:
        # Who is held for a model that is starting has its turn, but no server has the request yet.
        running = {model: turns.running - self._held[model] for model, turns in self._turns.items()}
        waiting = {model: turns.waiting + self._held[model] for model, turns in self._turns.items()}
        return self._figures.text(running=running, waiting=waiting, connections=len(self._clients))


def _reply(wire: Wire, status: int, body: bytes, kind: str, extra: dict[str, str]) -> None:
    headers = [("Content-Type", kind), ("Content-Length", str(len(body))), *extra.items()]
    head = h11.Response(status_code=status, headers=headers)
    wire.send(head, h11.Data(data=body), h11.EndOfMessage())


async def _skip_body(wire: Wire) -> None:
    """Reads what is left of a request that was answered already."""
    with contextlib.suppress(TimeoutError, h11.RemoteProtocolError, ConnectionError):
        async with asyncio.timeout(LINGER_SECONDS):
            while wire.h11.their_state is h11.SEND_BODY:
                await wire.receive()


def _require_method(request: h11.Request, method: bytes) -> None:
    if request.method != method:
        raise RefusalError(405, "wrong_method", f"this path takes {method.decode()}")


def _shown(route: Route) -> dict[str, object]:
    """A model as OpenAI clients list it, with what we know besides."""
    return {
        "id": route.model,
        "object": "model",
        "created": 0,
        "owned_by": "journeyman",
        "state": "asleep" if route.asleep else route.state.value,
        "context_tokens": route.context_tokens,
        "reason": route.reason,
    }

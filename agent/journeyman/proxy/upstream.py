"""Asks a model server: waits until there is one, connects, sends the request, and reads the reply's head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import h11

from journeyman.core.proxy.reach import Seen
from journeyman.core.proxy.refusal import RefusalError
from journeyman.core.proxy.request import Body, Headers, Target, to_server
from journeyman.core.proxy.routes import Route, RouteState, Upstream
from journeyman.proxy.log import tell
from journeyman.proxy.route_table import RouteTable
from journeyman.proxy.wire import Wire, connect

LOOK_AGAIN_SECONDS = 0.05
LOADING = 503
RETRY_AFTER_SECONDS = 5


@dataclass
class Reply:
    """What a model server began to answer.

    Attributes:
        wire: the connection; whoever gets this closes it.
        head: the status and the headers.
        passed_on_at: when the request had been sent, by the loop's clock.
    """

    wire: Wire
    head: h11.Response
    passed_on_at: float


@dataclass(frozen=True)
class Asking:
    """One request on its way.

    Attributes:
        method: of the request.
        target: of the request.
        headers: of the request.
        body: of the request.
        seen: the routes that its client may know of, as they are now.
    """

    method: bytes
    target: Target
    headers: Headers
    body: Body
    seen: Callable[[], Seen]

    def route(self) -> Route:
        """The route of its model.  Raises RefusalError: there is none, or it does not lead anywhere."""
        seen, model = self.seen(), self.body.model
        route = seen.route(model)
        if route is None:
            known = ", ".join(seen.routes) or "none"
            raise RefusalError(
                404, "model_not_found", f"no model {model!r} is served here; there is: {known}"
            )
        if route.state is RouteState.FAILED:
            because = f": {route.reason}" if route.reason else ""
            raise RefusalError(503, "model_failed", f"model {route.model} cannot be served{because}")
        return route


class Upstreams:
    """The way to the model servers.

    Args:
        table: the routes.
        hold_seconds: how long a request waits for a model that is starting.
        stall_seconds: how long a server may be silent before its first byte.
        held: told 1 when a request begins to wait for its model, and -1 when that ends.
    """

    def __init__(
        self, table: RouteTable, hold_seconds: float, stall_seconds: float, held: Callable[[str, int], None]
    ) -> None:
        self._table = table
        self._hold_seconds = hold_seconds
        self._stall_seconds = stall_seconds
        self._held = held

    async def ask(self, asking: Asking, arrived: float) -> Reply:
        """The reply of the model's server, as soon as there is one.

        The route is looked up at each try, so that a server which was started again on another port is
        found there.  Nothing is sent twice to a server that may have begun to work on it.

        Args:
            asking: the request.
            arrived: when it came, by the loop's clock; it is held from then on.

        Raises:
            RefusalError: there is no server in time, or it broke off before it answered.
        """
        route = asking.route()
        reply = await self._try(asking, route, may_wait=True)
        if reply is not None:
            return reply
        model = route.model
        deadline = arrived + self._hold_seconds
        self._held(model, 1)
        try:
            while reply is None:
                route, now = asking.route(), asyncio.get_running_loop().time()
                if now >= deadline and route.state is RouteState.STARTING:
                    raise self._not_in_time(route)
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                reply = await self._try(asking, route, may_wait=now < deadline)
        finally:
            self._held(model, -1)
        return reply

    async def _try(self, asking: Asking, route: Route, *, may_wait: bool) -> Reply | None:
        """A reply, or None where it is worth waiting for one.

        Args:
            asking: the request.
            route: where it goes.
            may_wait: whether there is time left; without it trouble is told.
        """
        if route.state is not RouteState.READY:
            return None
        where = Upstream.of(route.base_url)
        try:
            key = self._table.key_of(route)
            wire = await connect(where.host, where.port)
        except OSError as error:
            # Nothing was sent: the server is gone, and the agent knows or will know.
            if may_wait:
                return None
            tell("model_server_not_reached", model=route.model, error=str(error))
            raise self._not_in_time(route) from error
        reply = await self._first_words(asking, route, where, key, wire)
        if reply.head.status_code == LOADING and may_wait:
            # It has not begun: some say that they are loading for a while after their port is open.
            wire.abort()
            return None
        return reply

    async def _first_words(
        self, asking: Asking, route: Route, where: Upstream, key: bytes, wire: Wire
    ) -> Reply:
        body = asking.body.pinned(route.pinned_model)
        headers = to_server(asking.headers, host=f"{where.host}:{where.port}", key=key, length=len(body))
        target = asking.target.below(where.prefix)
        try:
            request = h11.Request(method=asking.method, target=target, headers=headers)
            wire.send(request, h11.Data(data=body), h11.EndOfMessage())
            passed_on_at = asyncio.get_running_loop().time()
            async with asyncio.timeout(self._stall_seconds):
                head = await wire.receive()
                while isinstance(head, h11.InformationalResponse):
                    head = await wire.receive()
        except TimeoutError as error:
            wire.abort()
            raise RefusalError(
                504, "model_stalled", f"the server of {route.model} was silent for {self._stall_seconds:g} s"
            ) from error
        except (h11.RemoteProtocolError, ConnectionError) as error:
            raise _broke_off(wire, route, str(error)) from error
        except asyncio.CancelledError:
            # The client has gone: so has the question.
            wire.abort()
            raise
        if not isinstance(head, h11.Response):
            raise _broke_off(wire, route, "it closed the connection")
        return Reply(wire, head, passed_on_at)

    def _not_in_time(self, route: Route) -> RefusalError:
        because = f": {route.reason}" if route.reason else ""
        return RefusalError(
            503,
            "model_loading",
            f"model {route.model} is not ready after {self._hold_seconds:g} s{because}; try again",
            RETRY_AFTER_SECONDS,
        )


def _broke_off(wire: Wire, route: Route, why: str) -> RefusalError:
    wire.abort()
    tell("model_server_broke_off", model=route.model, error=why)
    message = f"the server of {route.model} ended before it answered; try again"
    return RefusalError(502, "model_broke_off", message, 1)

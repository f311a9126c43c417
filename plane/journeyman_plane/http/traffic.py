"""Counts the bytes of requests for objects, heads included, as they are without TLS and chunking."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from journeyman_plane.http.api import Api

_OBJECTS = ("/api/v1/", "/apis/")
# Of a header: colon, space and line end.  Of a first line: its blanks, its line end, and `HTTP/1.1`.
_HEADER_BYTES = 4
_FIRST_LINE_BYTES = 12


class CountTraffic:
    """Adds up what passes.

    Args:
        app: what answers.
        api: where it is counted.
    """

    def __init__(self, app: ASGIApp, api: Api) -> None:
        self._app = app
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(_OBJECTS):
            await self._app(scope, receive, send)
            return

        async def counted_receive() -> Message:
            message = await receive()
            self._api.received_bytes += len(message.get("body", b""))
            return message

        async def counted_send(message: Message) -> None:
            self._api.sent_bytes += len(message.get("body", b"")) + _head(message.get("headers", ()))
            await send(message)

        line = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"]) + _FIRST_LINE_BYTES
        self._api.received_bytes += line + _head(scope["headers"])
        await self._app(scope, counted_receive, counted_send)


def _head(headers: Iterable[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) + _HEADER_BYTES for name, value in headers)

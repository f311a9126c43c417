"""Watches: a stream of events, one JSON object a line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.responses import Response, StreamingResponse

from journeyman.errors import ExpiredError
from journeyman_plane.core import status
from journeyman_plane.core.watch_events import event_of
from journeyman_plane.errors import RequestError
from journeyman_plane.http.objects import Call
from journeyman_plane.http.replies import encode, wants_table

JsonObject = dict[str, Any]
_TRUE = ("true", "1")
# A resourceVersion is a 64-bit number.
_MOST_DIGITS = 19


async def watch(call: Call) -> Response:
    """The changes of a collection from a resourceVersion on.

    Without one, or with 0, the stream begins with an ADDED event for each object that is there.  With
    `sendInitialEvents` it always does, and a bookmark says where these end: so kubectl lists.

    A version to which the changes no longer reach back begins with 200, too, and its one event is an ERROR of
    code 410, as the watch cache of Kubernetes answers.

    Raises:
        RequestError: 400 for a parameter that cannot be read.
    """
    events = Events(call)
    events.open()
    return StreamingResponse(events.lines(), media_type="application/json")


class Events:
    """The events of one watch.

    Args:
        call: the request; its selectors, `timeoutSeconds` and `allowWatchBookmarks` are obeyed.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self._api = call.api
        self._resource = (call.target.resource.group, call.target.resource.plural)
        self._selected = call.selection()
        self._as_table = wants_table(call.request)
        self._columns_sent = False
        self._bookmarks = call.parameter("allowWatchBookmarks") in _TRUE
        wanted = _number(call, "timeoutSeconds") or self._api.longest_watch_seconds
        self._seconds = min(wanted, self._api.longest_watch_seconds)
        self._seen = _number(call, "resourceVersion")
        self._stream_first = call.parameter("sendInitialEvents") in _TRUE
        self._first: list[JsonObject] = []

    def open(self) -> None:
        """Finds where the stream begins."""
        if self._seen and not self._stream_first:
            return
        self._first, self._seen = self._api.store.select(*self._resource, self._call.target.namespace)

    async def lines(self) -> AsyncIterator[bytes]:
        """The stream: it ends with the time of the watch, with the plane, or with an ERROR event (410)."""
        for stored in self._first:
            if self._selected(stored, stored["metadata"].get("labels") or {}):
                yield self._line("ADDED", stored)
        self._first = []
        if self._stream_first:
            yield self._bookmark({"annotations": {"k8s.io/initial-events-end": "true"}})
        try:
            async for line in self._follow():
                yield line
        except ExpiredError as error:
            yield encode({"type": "ERROR", "object": status.failure(error)}) + b"\n"

    async def _follow(self) -> AsyncIterator[bytes]:
        """Events and bookmarks as they come.  Raises ExpiredError once this watch lags too far behind."""
        time = asyncio.get_running_loop().time
        ends = time() + self._seconds
        pause_ends = time() + self._api.bookmark_seconds
        while not self._api.stopping and time() < ends:
            for line in self._new():
                yield line
            if time() >= pause_ends:
                pause_ends = time() + self._api.bookmark_seconds
                if self._bookmarks:
                    yield self._bookmark()
            await self._api.store.wait_for_change(self._seen, min(ends, pause_ends) - time(), self._resource)
        if self._bookmarks and not self._api.stopping:
            # The next watch begins where this one has seen to, however short it was.
            for line in self._new():
                yield line
            yield self._bookmark()

    def _new(self) -> Iterator[bytes]:
        version = self._api.store.version()
        for change in self._api.store.changes(self._seen, self._resource):
            if self._call.target.namespace in {"", change.key.namespace}:
                kind = event_of(change, self._selected)
                if kind is not None:
                    yield self._line(kind, change.object)
            self._seen = change.resource_version
        self._seen = max(self._seen, version)

    def _line(self, kind: str, stored: JsonObject) -> bytes:
        if self._as_table:
            stored = self._call.as_table([stored])
            if self._columns_sent:
                stored["columnDefinitions"] = None
            self._columns_sent = True
        return encode({"type": kind, "object": stored}) + b"\n"

    def _bookmark(self, extra: JsonObject | None = None) -> bytes:
        resource = self._call.target.resource
        metadata = {"resourceVersion": str(self._seen), "creationTimestamp": None} | (extra or {})
        body: JsonObject = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return encode({"type": "BOOKMARK", "object": body}) + b"\n"


def _number(call: Call, name: str) -> int:
    text = call.parameter(name) or "0"
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise RequestError(f"{name}: {text!r} is no number", status=400, reason="BadRequest")
    return int(text)

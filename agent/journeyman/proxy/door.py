"""The ways in: one from this machine, and, where its operator wants that, one from others."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from journeyman.core.proxy.config import ProxyConfig
from journeyman.core.proxy.reach import GENERATING_PATHS, Reach, Seen
from journeyman.core.proxy.refusal import RefusalError
from journeyman.core.proxy.request import API, Target, is_allowed
from journeyman.proxy.log import tell
from journeyman.proxy.route_table import RouteTable
from journeyman.proxy.wire import Wire

# Whoever knocks all the time must not fill the log.
TOLD_EVERY_SECONDS = 10.0
BUSY_RETRY_SECONDS = 5


class Door:
    """The way in from this machine: whoever has the key sees everything.

    Args:
        config: the limits.
        key: what clients have to show.
        table: the routes.
    """

    def __init__(self, config: ProxyConfig, key: bytes, table: RouteTable) -> None:
        self._key = key
        self._table = table
        self.connection_limit = config.connection_limit
        self.head_seconds = config.head_seconds
        # None: each part of it has `head_seconds`, as long as parts come.
        self.body_seconds: float | None = None
        self._inside: dict[Wire, str] = {}
        self._turned_away = 0
        self._told_at = 0.0

    def let_in(self, wire: Wire) -> bool:
        """Whether a new connection may stay; nothing of it has been read yet."""
        source = wire.source
        why = self._refusal(source)
        if why:
            self._note(source, why)
            return False
        self._inside[wire] = source
        return True

    def left(self, wire: Wire) -> None:
        """A connection that was let in is over."""
        self._inside.pop(wire, None)

    def _refusal(self, source: str) -> str:
        return "too many connections" if len(self._inside) >= self.connection_limit else ""

    def _note(self, source: str, why: str) -> None:
        self._turned_away += 1
        now = asyncio.get_running_loop().time()
        if not self._told_at or now - self._told_at >= TOLD_EVERY_SECONDS:
            tell("client_turned_away", source=source, why=why, times=self._turned_away)
            self._told_at, self._turned_away = now, 0

    def check_key(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Raises RefusalError: the client has not shown the key."""
        if not is_allowed(headers, self._key):
            raise RefusalError(
                401, "invalid_api_key", "send the key of this proxy as `Authorization: Bearer KEY`"
            )

    def check_path(self, target: Target) -> None:
        """Raises RefusalError: there is nothing here below that path."""

    def seen(self, headers: Iterable[tuple[bytes, bytes]]) -> Seen:
        """The routes that a request with these headers may know of, as they are now."""
        return Seen(self._table.routes())

    @contextlib.contextmanager
    def carrying(self) -> Iterator[Load]:
        """The memory of one request's body, which is given back at the end of the block."""
        yield Load()


class ReachDoor(Door):
    """The way in from other machines: from the named networks, to the services that are shown there.

    Args:
        config: the limits.
        reach: those for others.
        key: what clients have to show; empty where they need none.
        table: the routes.
    """

    def __init__(self, config: ProxyConfig, reach: Reach, key: bytes, table: RouteTable) -> None:
        super().__init__(config, key, table)
        self._reach = reach
        self.connection_limit = reach.connection_limit
        self.head_seconds = min(config.head_seconds, reach.head_seconds)
        self.body_seconds = reach.body_seconds
        self._loads = Load(reach.held_bytes)

    def _refusal(self, source: str) -> str:
        if not self._reach.lets_in(source):
            return "not one of the sources"
        if Counter(self._inside.values())[source] >= self._reach.connections_per_source:
            return "too many connections of this source"
        return super()._refusal(source)

    def check_key(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if self._reach.has_key:
            super().check_key(headers)

    def check_path(self, target: Target) -> None:
        models = f"{API}/models"
        if target.path not in GENERATING_PATHS | {models} and not target.path.startswith(f"{models}/"):
            raise RefusalError(404, "unknown_path", "there is no such path here; the API is below /v1")

    def seen(self, headers: Iterable[tuple[bytes, bytes]]) -> Seen:
        host = dict(headers).get(b"host", b"").decode("latin-1")
        return Seen.from_elsewhere(self._table.routes(), host)

    @contextlib.contextmanager
    def carrying(self) -> Iterator[Load]:
        load = Load(whole=self._loads)
        try:
            yield load
        finally:
            self._loads.bytes -= load.bytes


@dataclass
class Load:
    """Bytes of bodies that lie in memory.

    Attributes:
        limit: how many there may be; None is any number.
        whole: the load of which this is a part.
        bytes: that there are.
    """

    limit: int | None = None
    whole: Load | None = None
    bytes: int = 0

    def add(self, count: int) -> None:
        """Raises RefusalError: there is no room for so much at this moment."""
        if self.whole is not None:
            self.whole.add(count)
        if self.limit is not None and self.bytes + count > self.limit:
            raise RefusalError(
                503, "busy", "too much is being said at this moment; try again", BUSY_RETRY_SECONDS
            )
        self.bytes += count

"""Follows one collection of the control plane: one list, and then a watch.

A stream that ends is opened again where it stopped.  What contradicts the stream, such as a version that is
too old (410 as a status, or inside a stream of status 200), leads to a new list.  A watch that keeps failing
degrades to lists, further and further apart.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import aclosing

import structlog

from journeyman.errors import ControlPlaneError, ExpiredError
from journeyman.ports import Clock, Collection, ControlPlane, JsonObject, WatchEvent
from journeyman.settings import Settings
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)

# A stream that is shorter and told nothing counts as a failure, or it would be opened without a pause.
SHORTEST_WATCH_SECONDS = 1.0
# On battery: a task that is made and then assigned to us is one burst.
BURST_SECONDS = 1.0


class Watching:
    """Follows one collection.

    Args:
        plane: the control plane.
        clock: time.
        settings: pauses and deadlines.
        collection: what is followed.
        listed: takes all objects, in place of those that were known.
        told: takes one event of the watch, which is no bookmark.
        saves_power: whether the host is on battery.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        collection: Collection,
        listed: Callable[[list[JsonObject]], None],
        told: Callable[[WatchEvent], None],
        saves_power: Callable[[], bool],
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._collection = collection
        self._listed = listed
        self._tell = told
        self._saves_power = saves_power
        self._version: str | None = None
        self._told = False
        self._burst_began_at = clock.monotonic()
        self._session: asyncio.Task[ControlPlaneError | None] | None = None
        self._again = asyncio.Event()
        self.last_error: ControlPlaneError | None = None

    def doubt(self) -> None:
        """Something contradicts what we know: asks for a new list, unless one is on its way."""
        if self._version is not None and self._session is not None:
            self._session.cancel()
        self._version = None

    def try_soon(self) -> None:
        """The control plane has answered somebody, so the way to it works."""
        self._again.set()

    async def refresh(self) -> None:
        """Lists anew.  Raises ControlPlaneError, and then what was known stays."""
        listed = await self._plane.list(self._collection)
        self._version = listed.resource_version
        self._listed(listed.items)

    async def run(self) -> None:
        """Follows for ever.  An API that does not answer does not end it."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            self._told = False
            error = self.last_error = await self._one_session()
            lasted = self._clock.monotonic() - began >= SHORTEST_WATCH_SECONDS
            failures = 0 if self._told or (error is None and lasted) else failures + 1
            if failures > 1:
                # What no watch tells, a list may.
                self._version = None
            if failures:
                self._again.clear()
                await happens_within(self._again, self._pause_seconds(failures, error), self._clock)

    async def _one_session(self) -> ControlPlaneError | None:
        """Lists where that is due, and follows one stream to its end; returns why it ended, if badly."""
        self._session = asyncio.ensure_future(self._follow())
        try:
            await asyncio.wait({self._session})
            return None if self._session.cancelled() else self._session.result()
        finally:
            self._session.cancel()
            await asyncio.gather(self._session, return_exceptions=True)

    async def _follow(self) -> ControlPlaneError | None:
        try:
            version = self._version
            if version is None:
                await self.refresh()
                version = self._version or ""
            stream = self._plane.watch(
                self._collection, resource_version=version, bookmarks=not self._saves_power()
            )
            async with aclosing(stream) as events:
                async for event in events:
                    self._take(event)
                    await self._spare_the_battery()
        except ExpiredError as error:
            self._version = None
            log.info("watch_expired", resource=self._collection.plural)
            return error
        except ControlPlaneError as error:
            log.warning("watch_failed", resource=self._collection.plural, error=str(error))
            return error
        return None

    def _take(self, event: WatchEvent) -> None:
        """Raises ControlPlaneError: it is no object of Kubernetes."""
        metadata = event.object.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(version, str) or not version:
            raise ControlPlaneError(
                f"WATCH {self._collection.plural}: the server sent an object without a version"
            )
        if event.type != "BOOKMARK":
            self._tell(event)
        self._version = version
        self._told = True

    async def _spare_the_battery(self) -> None:
        """After a quiet time all is read as it comes; what comes later waits, and is read in one go."""
        if not self._saves_power():
            return
        pause, since = self._settings.battery_pause_seconds, self._clock.monotonic() - self._burst_began_at
        if BURST_SECONDS < since <= pause:
            await self._clock.sleep(pause)
        if since > BURST_SECONDS:
            self._burst_began_at = self._clock.monotonic()

    def _pause_seconds(self, failures: int, error: ControlPlaneError | None) -> float:
        """Full jitter, as a fleet that lost its plane comes back all at once; no sooner than asked for."""
        longest = min(self._settings.watch_retry_max_seconds, 2.0 ** (failures - 1))
        asked = None if error is None else error.retry_after_seconds
        return max(asked or 0.0, random.uniform(0, longest))

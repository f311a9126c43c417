"""Knows the tasks of one namespace that concern this node: one list, and then a watch.

A stream that ends is opened again where it stopped.  What contradicts the stream, such as a version that is
too old (410 as a status, or inside a stream of status 200) or a reservation that it did not tell of, leads
to a new list.  A watch that keeps failing degrades to lists, further and further apart.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing

import structlog

from journeyman.errors import ControlPlaneError, ExpiredError, InvalidError
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Clock, Collection, ControlPlane, JsonObject, WatchEvent
from journeyman.settings import Settings
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)

# A stream that is shorter and told nothing counts as a failure, or it would be opened without a pause.
SHORTEST_WATCH_SECONDS = 1.0
# On battery: a task that is made and then assigned to us is one burst.
BURST_SECONDS = 1.0


class TaskFeed:
    """The tasks of one namespace, as the control plane last told of them.

    Args:
        plane: the control plane.
        clock: time.
        settings: pauses and deadlines.
        namespace: whose tasks.
        node_name: who we are.
        runs_here: whether a task of that name runs here, so that all that becomes of it matters.
        changed: called when something has changed that concerns this node.
        saves_power: whether the host is on battery.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        namespace: str,
        node_name: str,
        runs_here: Callable[[str], bool],
        changed: Callable[[], None],
        saves_power: Callable[[], bool],
    ) -> None:
        self.namespace = namespace
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._node_name = node_name
        self._runs_here = runs_here
        self._changed = changed
        self._saves_power = saves_power
        self._collection = Collection(
            AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, namespace
        )
        self._tasks: dict[str, AgenticTask] | None = None
        self._version: str | None = None
        self._told = False
        self._burst_began_at = clock.monotonic()
        self._session: asyncio.Task[ControlPlaneError | None] | None = None
        self._again = asyncio.Event()
        self._unreadable: set[str] = set()

    def tasks(self) -> list[AgenticTask] | None:
        """The tasks that concern this node; None while nothing is known of the namespace."""
        return None if self._tasks is None else list(self._tasks.values())

    def note(self, item: JsonObject) -> None:
        """Takes in what a write of ours has returned, as the stream tells of it only later."""
        if self._tasks is not None:
            self._apply(WatchEvent("MODIFIED", item))

    def doubt(self) -> None:
        """Something contradicts what we know: asks for a new list, unless one is on its way."""
        if self._version is not None and self._session is not None:
            self._session.cancel()
        self._version = None

    def heard(self, current_task: str) -> None:
        """The control plane has taken a heartbeat, so the way to it works.

        Args:
            current_task: `namespace/name` that it keeps this node for, or an empty string.  A stream that
                has not told of that task may be dead and look alive.
        """
        self._again.set()
        namespace, _, name = current_task.partition("/")
        if namespace == self.namespace and self._tasks is not None and name not in self._tasks:
            log.info("reservation_unknown", task=current_task)
            self.doubt()

    async def refresh(self) -> None:
        """Lists anew.  Raises ControlPlaneError, and then what was known stays."""
        listed = await self._plane.list(self._collection)
        self._tasks = {task.metadata.name: task for task in self._concerning(listed.items)}
        self._version = listed.resource_version
        self._changed()

    async def run(self) -> None:
        """Follows for ever.  An API that does not answer does not end it."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            self._told = False
            error = await self._one_session()
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
            log.info("watch_expired", namespace=self.namespace)
            return error
        except ControlPlaneError as error:
            log.warning("watch_failed", namespace=self.namespace, error=str(error))
            return error
        return None

    def _take(self, event: WatchEvent) -> None:
        """Raises ControlPlaneError: it is no object of Kubernetes."""
        metadata = event.object.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        if not isinstance(version, str) or not version:
            raise ControlPlaneError("WATCH agentictasks: the server sent an object without a version")
        if event.type != "BOOKMARK" and self._apply(event):
            self._changed()
        self._version = version
        self._told = True

    def _apply(self, event: WatchEvent) -> bool:
        """Whether it concerned this node."""
        known = self._tasks if self._tasks is not None else {}
        name = str(event.object["metadata"].get("name"))
        [*tasks] = [] if event.type == "DELETED" else self._concerning([event.object])
        before = known.pop(name, None)
        known.update({task.metadata.name: task for task in tasks})
        return before is not None or bool(tasks)

    def _concerning(self, items: Iterable[JsonObject]) -> list[AgenticTask]:
        """Those that are ours and not over, and those that run here whatever they are.

        The tasks of other nodes are not even read: a large fleet has thousands.
        """
        found = []
        for item in items:
            status, metadata = item.get("status") or {}, item.get("metadata") or {}
            name = str(metadata.get("name"))
            runs = self._runs_here(name)
            if not runs and status.get("assignedNode") != self._node_name:
                continue
            task = self._read(name, item)
            if task is not None and (runs or not task.is_terminal):
                found.append(task)
        return found

    def _read(self, name: str, item: JsonObject) -> AgenticTask | None:
        """None for one that we cannot read; a newer control plane may know words that we do not."""
        try:
            return AgenticTask.from_wire(item)
        except InvalidError as error:
            if name not in self._unreadable:
                self._unreadable.add(name)
                log.warning("unreadable_task_ignored", task=name, error=str(error))
            return None

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

"""Knows the tasks of one namespace that concern this node; see `following/watching.py` for how."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import structlog

from journeyman.errors import InvalidError
from journeyman.following.watching import Watching
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Clock, Collection, ControlPlane, JsonObject, WatchEvent
from journeyman.settings import Settings

log = structlog.get_logger(__name__)


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
        self._node_name = node_name
        self._runs_here = runs_here
        self._changed = changed
        self._watching = Watching(
            plane=plane,
            clock=clock,
            settings=settings,
            collection=Collection(
                AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, namespace
            ),
            listed=self._list,
            told=self._event,
            saves_power=saves_power,
        )
        self._tasks: dict[str, AgenticTask] | None = None
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
        self._watching.doubt()

    def heard(self, current_task: str) -> None:
        """The control plane has taken a heartbeat, so the way to it works.

        Args:
            current_task: `namespace/name` that it keeps this node for, or an empty string.  A stream that
                has not told of that task may be dead and look alive.
        """
        self._watching.try_soon()
        namespace, _, name = current_task.partition("/")
        if namespace == self.namespace and self._tasks is not None and name not in self._tasks:
            log.info("reservation_unknown", task=current_task)
            self.doubt()

    async def refresh(self) -> None:
        """Lists anew.  Raises ControlPlaneError, and then what was known stays."""
        await self._watching.refresh()

    def _list(self, items: list[JsonObject]) -> None:
        self._tasks = {task.metadata.name: task for task in self._concerning(items)}
        self._changed()

    async def run(self) -> None:
        """Follows for ever.  An API that does not answer does not end it."""
        await self._watching.run()

    def _event(self, event: WatchEvent) -> None:
        if self._apply(event):
            self._changed()

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

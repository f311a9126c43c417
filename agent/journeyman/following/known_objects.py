"""All objects of one kind in one namespace, as the control plane last told of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import structlog

from journeyman.errors import InvalidError
from journeyman.following.watching import Watching
from journeyman.model.resources import Resource
from journeyman.ports import Clock, Collection, ControlPlane, JsonObject, WatchEvent
from journeyman.settings import Settings

log = structlog.get_logger(__name__)

T = TypeVar("T")


class KnownObjects(Generic[T]):
    """The objects of one kind.

    Args:
        resource: which kind.
        namespace: where.
        read: makes of an object what is kept of it; raises InvalidError.
        changed: called when something has changed.
        plane: the control plane.
        clock: time.
        settings: pauses and deadlines.
        saves_power: whether the host is on battery.
    """

    def __init__(
        self,
        resource: Resource,
        namespace: str,
        read: Callable[[JsonObject], T],
        changed: Callable[[], None],
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        saves_power: Callable[[], bool],
    ) -> None:
        self.collection = Collection(resource.group, resource.version, resource.plural, namespace)
        self._read = read
        self._changed = changed
        self._watching = Watching(
            plane=plane,
            clock=clock,
            settings=settings,
            collection=self.collection,
            listed=self._list,
            told=self._event,
            saves_power=saves_power,
        )
        self._objects: dict[str, T] | None = None

    def objects(self) -> dict[str, T] | None:
        """By `namespace/name`; None while nothing is known of the namespace."""
        return self._objects

    def note(self, item: JsonObject) -> None:
        """Takes in what a request of ours has returned, as the stream tells of it only later."""
        self._event(WatchEvent("MODIFIED", item))

    async def run(self) -> None:
        """Follows for ever.  An API that does not answer does not end it."""
        await self._watching.run()

    def try_soon(self) -> None:
        """The control plane has answered somebody, so the way to it works."""
        self._watching.try_soon()

    def doubt(self) -> None:
        """What is known may be old: all of it is listed anew."""
        self._watching.doubt()

    def _list(self, items: list[JsonObject]) -> None:
        known = self._objects or {}
        found: dict[str, T] = {}
        for item in items:
            self._take(found, item, known)
        self._objects = found
        self._changed()

    def _event(self, event: WatchEvent) -> None:
        if self._objects is None:
            return
        if event.type == "DELETED":
            self._objects.pop(_reference(event.object), None)
        else:
            self._take(self._objects, event.object, self._objects)
        self._changed()

    def _take(self, found: dict[str, T], item: JsonObject, known: dict[str, T]) -> None:
        """One that we cannot read stays as it was: a newer control plane may know words that we do not."""
        reference = _reference(item)
        try:
            found[reference] = self._read(item)
        except InvalidError as error:
            log.warning("unreadable_object_ignored", resource=self.collection.plural, error=error.message)
            if reference in known:
                found[reference] = known[reference]


def _reference(item: JsonObject) -> str:
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"

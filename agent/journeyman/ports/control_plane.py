"""A Kubernetes-shaped API, as the agent needs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from journeyman.ports.json_object import JsonObject


@dataclass(frozen=True)
class Collection:
    """All objects of one kind: `namespace` is None for cluster-scoped kinds and for "all namespaces"."""

    group: str
    version: str
    plural: str
    namespace: str | None = None

    def named(self, name: str) -> ObjectRef:
        """The one object of this collection that has that name."""
        return ObjectRef(self, name)


@dataclass(frozen=True)
class ObjectRef:
    """One object, by its name in its collection."""

    collection: Collection
    name: str


@dataclass(frozen=True)
class ObjectList:
    """What a list request returned, with the resourceVersion from which a watch goes on."""

    items: list[JsonObject]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: JsonObject


class ControlPlane(Protocol):
    """A Kubernetes-shaped API server, one method for each verb that we use.

    No method retries: the caller knows what a second try would cost.  A call fails once the other side has
    been silent for the request timeout of the settings; a slow link that still carries bytes may take longer.
    """

    async def get(self, ref: ObjectRef) -> JsonObject:
        """Returns the object.  Raises NotFoundError where there is none."""
        ...

    async def list(self, collection: Collection, *, label_selector: str = "") -> ObjectList:
        """Returns all objects of the collection that match the selector."""
        ...

    async def create(self, collection: Collection, body: Mapping[str, Any]) -> JsonObject:
        """Returns the object as stored.  Raises ConflictError where the name is taken."""
        ...

    async def patch(self, ref: ObjectRef, body: Mapping[str, Any], *, subresource: str = "") -> JsonObject:
        """Applies a JSON merge patch (RFC 7386) and returns the object as stored.

        With `metadata.resourceVersion` in the body it is a compare-and-set and raises ConflictError if
        the object has changed since.
        """
        ...

    async def delete(self, ref: ObjectRef) -> None:
        """Deletes the object.  Raises NotFoundError where there is none."""
        ...

    def watch(
        self,
        collection: Collection,
        *,
        resource_version: str,
        label_selector: str = "",
        bookmarks: bool = True,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yields the events after `resource_version` until the server ends the stream.

        With `bookmarks` the server tells about once a minute how far the stream has come, so that one that
        stays silent is known to be dead.  Without them nothing disturbs a host that saves power.  Raises
        ExpiredError when that version is too old, also where a 200 stream says so in an ERROR event.
        """
        ...

    def clock_offset_seconds(self) -> float:
        """The server's clock minus ours, from the Date header of the last reply; 0.0 before the first.

        Whole seconds are all that a Date header gives, so offsets under two seconds are reported as 0.0.
        """
        ...

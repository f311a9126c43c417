"""What the plane needs of the world: a store of objects, one of artifacts, and a clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

JsonObject = dict[str, Any]


class Clock(Protocol):
    """Time, as an argument to everything that decides."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...


@dataclass(frozen=True)
class Key:
    """Where an object is kept: its resource, its namespace ("" if cluster-scoped) and its name."""

    group: str
    plural: str
    namespace: str
    name: str

    @property
    def resource(self) -> tuple[str, str]:
        """The group and the plural."""
        return self.group, self.plural


@dataclass(frozen=True)
class Preconditions:
    """What must still be true of an object for a write to happen; None means anything."""

    uid: str | None = None
    resource_version: str | None = None


@dataclass(frozen=True)
class Change:
    """One committed write, in the order of its resourceVersion.

    Attributes:
        type: ADDED, MODIFIED or DELETED.
        resource_version: its place in the order of all writes.
        object: the object after the write, or its last state; shared, so it must not be changed.
        key: where the object is kept.
        old_labels: the labels before the write, by which a watch sees objects enter and leave a selection.
    """

    type: str
    resource_version: int
    object: JsonObject
    key: Key
    old_labels: Mapping[str, str] = field(default_factory=dict)


class Store(Protocol):
    """Objects with uid, resourceVersion and creationTimestamp, durable before a write returns.

    Every method is synchronous and short, and may be called from any thread.  Errors are those of
    `journeyman.errors`: NotFoundError, ConflictError (stale precondition, name taken), ExpiredError (a
    change log that was compacted).  Schemas are not checked here: the HTTP surface and the reconcilers
    write valid objects.

    Where a kind has a status subresource, `create` and writes without `status=True` leave the status
    alone, and writes with it leave everything else alone.
    """

    def get(self, key: Key) -> JsonObject:
        """The object.  Raises NotFoundError."""
        ...

    def select(self, group: str, plural: str, namespace: str = "") -> tuple[list[JsonObject], int]:
        """All objects of a resource, by namespace and name, and the resourceVersion of that view.

        An empty namespace means all of them.
        """
        ...

    def create(self, key: Key, body: Mapping[str, Any], *, dry_run: bool = False) -> JsonObject:
        """Stores a new object and returns it with uid, resourceVersion and creationTimestamp.

        With `dry_run` it says what would be stored.  Raises ConflictError where the name is taken.
        """
        ...

    def update(
        self,
        key: Key,
        change: Callable[[JsonObject], Mapping[str, Any]],
        *,
        status: bool = False,
        preconditions: Preconditions | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Replaces the object, or its status alone, with what `change` makes of the stored one.

        Read, change and write are one transaction; what `change` raises ends it with nothing written.
        A uid or resourceVersion in the new content is a precondition.  A change that changes nothing
        writes nothing and keeps the resourceVersion, as Kubernetes does.  An object that waits for its
        finalizers is removed once they are gone.  Raises NotFoundError, and ConflictError where a
        precondition does not hold.
        """
        ...

    def patch(
        self,
        key: Key,
        merge_patch: Mapping[str, Any],
        *,
        status: bool = False,
        preconditions: Preconditions | None = None,
    ) -> JsonObject:
        """Applies a JSON merge patch to the object, or to its status alone, as `update` does."""
        ...

    def delete(
        self, key: Key, preconditions: Preconditions | None = None, *, dry_run: bool = False
    ) -> JsonObject:
        """Deletes the object and returns its last state.  Raises as `update` does.

        With finalizers it is marked by a deletionTimestamp instead, and goes when they are gone.
        """
        ...

    def changes(self, after: int, resource: tuple[str, str] | None = None) -> list[Change]:
        """The writes after a resourceVersion, oldest first; of one (group, plural) where it is given.

        Raises ExpiredError if the log no longer reaches back that far, or never reached that far.
        """
        ...

    def version(self) -> int:
        """The resourceVersion of the last write."""
        ...

    async def wait_for_change(
        self, after: int, timeout_seconds: float, resource: tuple[str, str] | None = None
    ) -> None:
        """Returns when there may be a write after that resourceVersion, or when the time is over.

        With a (group, plural) writes to other resources do not end the wait; the caller asks `version`
        for how far it has seen everything.
        """
        ...


@dataclass(frozen=True)
class Artifact:
    """One file of a release, or its signature.

    Attributes:
        path: where it lies; it is never changed in place.
        size: in bytes.
        sha256: of its content, in lower-case hex.
    """

    path: Path
    size: int
    sha256: str


class Upload(Protocol):
    """An artifact that is coming in.  Both methods may block, so call them from a thread."""

    def write(self, data: bytes) -> None:
        """Takes the next bytes.  Raises RequestError (413) over the largest size."""
        ...

    def keep(self) -> tuple[Artifact, bool]:
        """Makes it durable under its name, and says whether the name is new.

        The same content again changes nothing.  Raises ConflictError (409) where the name has other
        content and is no signature's.
        """
        ...


class Artifacts(Protocol):
    """Releases that hosts fetch from the plane.  Both methods raise RequestError (400) for a bad name."""

    def find(self, version: str, name: str) -> Artifact:
        """The artifact.  May read the whole file, so call it from a thread.  Raises NotFoundError."""
        ...

    def receive(self, version: str, name: str) -> AbstractContextManager[Upload]:
        """Takes an artifact; what was not kept at the end of the block leaves nothing."""
        ...

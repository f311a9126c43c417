"""A control plane in memory: the `ControlPlane` port with Kubernetes semantics, and failures on demand.

It passes the same contract suite as `HttpControlPlane` (tests/contracts/test_control_plane.py).
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman.errors import ConflictError, ControlPlaneError, ExpiredError, NotFoundError
from journeyman.ports import Collection, JsonObject, ObjectList, ObjectRef, WatchEvent

Place = tuple[str, str, str, str]  # group, plural, namespace, name


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: objects merge, null deletes, anything else replaces."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


@dataclass
class FakeControlPlane:
    """Objects with uid and resourceVersion, compare-and-set, watches, and a script of failures.

    Attributes:
        calls: every call so far, as (verb, name); the name is empty for list, create and watch.
        failures: what the next calls of a verb raise, first come first served; see `fail`.
        offset_seconds: what `clock_offset_seconds` answers.
        down: while set, every call raises a copy of it: the API is lost.
        deaf: while set, watches say nothing and look alive: their connections are dead.
    """

    calls: list[tuple[str, str]] = field(default_factory=list)
    failures: dict[str, list[ControlPlaneError | None]] = field(default_factory=dict)
    offset_seconds: float = 0.0
    down: ControlPlaneError | None = None
    deaf: bool = False
    _objects: dict[Place, JsonObject] = field(default_factory=dict)
    _changes: list[tuple[int, str, JsonObject, Place]] = field(default_factory=list)
    _version: int = 0
    _oldest: int = 0
    _epoch: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def fail(self, verb: str, *errors: ControlPlaneError | None) -> None:
        """Lets the next calls of `verb` raise these errors in turn; None lets a call pass.

        Verbs are get, list, create, patch, patch_status, delete and watch.
        """
        self.failures.setdefault(verb, []).extend(errors)

    def forget_history(self) -> None:
        """Compacts the change log, so that a watch from any earlier resourceVersion is too old."""
        self._changes.clear()
        self._oldest = self._version

    async def get(self, ref: ObjectRef) -> JsonObject:
        self._called("get", ref.name)
        return copy.deepcopy(self._stored(ref))

    async def list(self, collection: Collection, *, label_selector: str = "") -> ObjectList:
        self._called("list", "")
        items = [
            copy.deepcopy(stored)
            for place, stored in sorted(self._objects.items())
            if _within(place, collection) and _selected(stored, label_selector)
        ]
        return ObjectList(items, str(self._version))

    async def create(self, collection: Collection, body: Mapping[str, Any]) -> JsonObject:
        self._called("create", "")
        name = body["metadata"]["name"]
        place = _place(collection.named(name))
        if place in self._objects:
            raise ConflictError(f"{name} already exists", status=409, reason="AlreadyExists")
        stored = copy.deepcopy({key: value for key, value in body.items() if key != "status"})
        stored["metadata"].update(uid=str(uuid.uuid4()), creationTimestamp="2026-01-01T00:00:00Z")
        if collection.namespace is not None:
            stored["metadata"]["namespace"] = collection.namespace
        await self._write("ADDED", place, stored)
        return copy.deepcopy(stored)

    async def patch(self, ref: ObjectRef, body: Mapping[str, Any], *, subresource: str = "") -> JsonObject:
        self._called(f"patch_{subresource}" if subresource else "patch", ref.name)
        stored = self._stored(ref)
        metadata = stored["metadata"]
        expected = body.get("metadata", {}).get("resourceVersion")
        if expected is not None and expected != metadata["resourceVersion"]:
            raise ConflictError(f"{ref.name} has been modified", status=409, reason="Conflict")
        if subresource == "status":
            body = {"status": body.get("status", {})}
        else:
            body = {key: value for key, value in body.items() if key != "status"}
        merged = merge_patch(stored, body)
        merged["metadata"]["resourceVersion"] = metadata["resourceVersion"]
        if merged != stored:
            await self._write("MODIFIED", _place(ref), merged)
        return copy.deepcopy(merged)

    async def delete(self, ref: ObjectRef) -> None:
        self._called("delete", ref.name)
        stored = self._stored(ref)
        place = _place(ref)
        await self._write("DELETED", place, copy.deepcopy(stored))
        del self._objects[place]

    async def watch(
        self,
        collection: Collection,
        *,
        resource_version: str,
        label_selector: str = "",
        bookmarks: bool = True,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Like the real one, without bookmarks; a stream ends with the API, or when a test ends it."""
        self._called("watch", "")
        seen, epoch = int(resource_version), self._epoch
        while epoch == self._epoch:
            if seen < self._oldest:
                raise ExpiredError("too old resource version", status=410, reason="Expired")
            for version, kind, changed, place in list(self._changes):
                if version > seen and _within(place, collection) and _selected(changed, label_selector):
                    yield WatchEvent(kind, copy.deepcopy(changed))
                seen = max(seen, version)
            async with self._changed:
                while (self._version <= seen or self.deaf) and self.down is None and epoch == self._epoch:
                    await self._changed.wait()
            if self.down is not None:
                raise self.down

    async def end_watches(self) -> None:
        """The server ends every watch that is open, as it does after the time that was asked for."""
        self._epoch += 1
        async with self._changed:
            self._changed.notify_all()

    def clock_offset_seconds(self) -> float:
        return self.offset_seconds

    async def lose(self, error: ControlPlaneError) -> None:
        """The API is lost: every call, and every watch that is open, raises `error` until `down` is None."""
        self.down = error
        async with self._changed:
            self._changed.notify_all()

    def _called(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if self.down is not None:
            raise self.down
        script = self.failures.get(verb)
        error = script.pop(0) if script else None
        if error is not None:
            raise error

    def _stored(self, ref: ObjectRef) -> JsonObject:
        try:
            return self._objects[_place(ref)]
        except KeyError:
            raise NotFoundError(f"{ref.name} not found", status=404, reason="NotFound") from None

    async def _write(self, kind: str, place: Place, stored: JsonObject) -> None:
        self._version += 1
        stored["metadata"]["resourceVersion"] = str(self._version)
        self._objects[place] = stored
        self._changes.append((self._version, kind, copy.deepcopy(stored), place))
        async with self._changed:
            self._changed.notify_all()


def _place(ref: ObjectRef) -> Place:
    collection = ref.collection
    return collection.group, collection.plural, collection.namespace or "", ref.name


def _within(place: Place, collection: Collection) -> bool:
    group, plural, namespace, _ = place
    return (group, plural) == (collection.group, collection.plural) and collection.namespace in {
        None,
        namespace,
    }


def _selected(stored: JsonObject, selector: str) -> bool:
    """Equality and existence, the two kinds of requirement that the agent uses."""
    labels = stored["metadata"].get("labels", {})
    for requirement in filter(None, selector.split(",")):
        key, equals, value = requirement.partition("=")
        if key not in labels or (equals and labels[key] != value.removeprefix("=")):
            return False
    return True

"""What Kubernetes does to an object before it is stored: identity, status and generation.

Which fields are valid is left to `core.schema`, when and where it is stored to the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from journeyman.errors import ConflictError, NotFoundError
from journeyman_plane.ports import JsonObject, Key, Preconditions

# Left out where they are empty, as if nobody had written them.
_OMITTED = ("labels", "annotations", "finalizers", "ownerReferences")
# The server's own: what a client writes here is ignored.
SERVER_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def created(key: Key, body: Mapping[str, Any], *, uid: str, now: datetime, split: bool) -> JsonObject:
    """A new object as it is stored, but for its resourceVersion.

    Args:
        key: where it will be kept.
        body: what the client sent.
        uid: its identity from now on.
        now: the time of its creation.
        split: whether its kind has a status subresource; then a status in the body is ignored.
    """
    metadata = _written(body.get("metadata", {}))
    metadata |= {"name": key.name, "uid": uid, "creationTimestamp": timestamp(now)}
    if key.namespace:
        metadata["namespace"] = key.namespace
    if split:
        metadata["generation"] = 1
    stored = {name: value for name, value in body.items() if not (split and name == "status")}
    return stored | {"metadata": metadata}


def updated(
    key: Key, current: JsonObject, proposed: Mapping[str, Any], *, status: bool, split: bool
) -> JsonObject:
    """What the object becomes when a client proposes a new content; equal to `current` if nothing changes.

    Args:
        key: where it is kept, for messages.
        current: the object as stored.
        proposed: the content that the client wants, whole.
        status: whether the write goes to the status subresource, which changes the status alone.
        split: whether the kind has a status subresource.

    Raises:
        ConflictError: the proposal carries another uid or resourceVersion than the stored object.
    """
    wanted = proposed.get("metadata") or {}
    check(key, current, Preconditions(wanted.get("uid"), wanted.get("resourceVersion") or None))
    if status:
        result = {name: value for name, value in current.items() if name != "status"}
        return result | ({"status": proposed["status"]} if "status" in proposed else {})
    metadata = _written(wanted)
    kept = current["metadata"]
    metadata |= {name: kept[name] for name in (*SERVER_FIELDS, "name", "namespace") if name in kept}
    metadata["resourceVersion"] = kept["resourceVersion"]
    result = dict(proposed) | {"metadata": metadata}
    if split:
        result.pop("status", None)
        if "status" in current:
            result["status"] = current["status"]
        if _desired(result) != _desired(current):
            metadata["generation"] = kept.get("generation", 0) + 1
    return result


def check(key: Key, current: JsonObject, preconditions: Preconditions | None) -> None:
    """Raises ConflictError unless the preconditions hold for the object as stored."""
    metadata = current["metadata"]
    if preconditions is None:
        return
    if preconditions.uid is not None and preconditions.uid != metadata["uid"]:
        raise ConflictError(
            f'Operation cannot be fulfilled on {qualified(key)} "{key.name}": '
            f"Precondition failed: UID in precondition: {preconditions.uid}, "
            f"UID in object meta: {metadata['uid']}",
            status=409,
            reason="Conflict",
        )
    if preconditions.resource_version not in {None, metadata["resourceVersion"]}:
        raise ConflictError(
            f'Operation cannot be fulfilled on {qualified(key)} "{key.name}": the object has been modified; '
            "please apply your changes to the latest version and try again",
            status=409,
            reason="Conflict",
        )


def check_deletion(key: Key, current: JsonObject, preconditions: Preconditions | None) -> None:
    """As `check`, in the words in which Kubernetes refuses a DELETE."""
    if preconditions is None:
        return
    metadata = current["metadata"]
    uid, version = preconditions.uid, preconditions.resource_version
    if uid is not None and uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
    elif version not in {None, metadata["resourceVersion"]}:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion "
            f"in record ({metadata['resourceVersion']}). The object might have been modified"
        )
    else:
        return
    kind = current.get("kind", key.plural) + (f".{key.group}" if key.group else "")
    raise ConflictError(
        f'Operation cannot be fulfilled on {kind} "{key.name}": {why}', status=409, reason="Conflict"
    )


def not_found(key: Key) -> NotFoundError:
    """The error for an object that is not there, in the words of Kubernetes."""
    return NotFoundError(f'{qualified(key)} "{key.name}" not found', status=404, reason="NotFound")


def already_exists(key: Key) -> ConflictError:
    """The error for a name that is taken, in the words of Kubernetes."""
    return ConflictError(f'{qualified(key)} "{key.name}" already exists', status=409, reason="AlreadyExists")


def qualified(key: Key) -> str:
    """The plural and the group, as messages spell it."""
    return f"{key.plural}.{key.group}" if key.group else key.plural


def _written(metadata: Mapping[str, Any]) -> JsonObject:
    """What a client may write of its metadata."""
    return {
        name: value
        for name, value in metadata.items()
        if name not in {*SERVER_FIELDS, "managedFields"} and (value or name not in _OMITTED)
    }


def _desired(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stored.items() if name not in {"metadata", "status"}}

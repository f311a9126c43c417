"""The `Status` object, in which Kubernetes says how a request ended."""

from __future__ import annotations

from typing import Any

from journeyman.errors import ControlPlaneError
from journeyman_plane.core.paths import Target
from journeyman_plane.errors import SchemaError

JsonObject = dict[str, Any]


def failure(error: ControlPlaneError, target: Target | None = None) -> JsonObject:
    """What a request that failed answers; its `code` is the HTTP status."""
    details: JsonObject = {}
    if target is not None:
        details = {"group": target.resource.group, "kind": target.resource.plural, "name": target.name}
        details = {name: value for name, value in details.items() if value}
    if isinstance(error, SchemaError):
        causes = [
            {"reason": each.reason, "message": each.message, "field": each.field} for each in error.causes
        ]
        details |= {"kind": error.kind, "causes": causes} | ({"name": error.name} if error.name else {})
    if error.retry_after_seconds is not None:
        details["retryAfterSeconds"] = int(error.retry_after_seconds)
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "details": details,
        "code": error.status,
    }


def deleted(target: Target, uid: str) -> JsonObject:
    """What a deletion answers once the object is gone."""
    resource = target.resource
    details = {"name": target.name, "group": resource.group, "kind": resource.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {name: value for name, value in details.items() if value},
    }

"""What a node may do with Services and EndpointSlices: register itself, under names that it has marked.

A Service can catch what is meant for others: by addresses of its own, by a selector, or by a slice beside
those of another Service.  So a node writes the plain ones of its registrations alone, and deletes no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from journeyman.model.registration import MANAGED_BY, MANAGER, NODE_LABEL, SERVICE_NAME
from journeyman.model.resources import ENDPOINT_SLICES, SERVICES
from journeyman_plane.core.paths import Target

VERBS = frozenset({"get", "list", "create", "update", "patch", "delete"})
# By which a Service gets what was not sent to its own address.
CATCHING = ("selector", "externalIPs", "externalName")
LIFE_FIELDS = ("finalizers", "ownerReferences")


def is_registration(target: Target) -> bool:
    """Whether it is of a kind by which nodes register."""
    resource = target.resource
    return any(
        (resource.group, resource.plural) == (each.group, each.plural) for each in (SERVICES, ENDPOINT_SLICES)
    )


def change_refusal(node: str, target: Target, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Why a node may not write that content; empty if it may.

    Args:
        node: the name of its FleetNode.
        target: what is written.
        before: the stored object; empty for a new one.
        after: the object as it would be stored.
    """
    if (before and not _is_of(node, before)) or not _is_of(node, after):
        return f'it is no registration of node "{node}"'
    metadata, spec = after["metadata"], after.get("spec") or {}
    for name in LIFE_FIELDS:
        if metadata.get(name):
            return f"a registration has no metadata.{name}"
    if target.resource.plural == ENDPOINT_SLICES.plural:
        own = metadata["labels"].get(SERVICE_NAME) == metadata["name"]
        return "" if own else "a slice is that of the Service of its own name"
    if spec.get("type", "ClusterIP") != "ClusterIP" or any(spec.get(name) for name in CATCHING):
        return "a Service of a registration is a plain ClusterIP one"
    return ""


def removal_refusal(node: str, before: Mapping[str, Any]) -> str:
    """Why a node may not delete that object; empty if it may."""
    return "" if _is_of(node, before) else f'it is no registration of node "{node}"'


def _is_of(node: str, found: Mapping[str, Any]) -> bool:
    labels = (found.get("metadata") or {}).get("labels") or {}
    return labels.get(MANAGED_BY) == MANAGER and labels.get(NODE_LABEL) == node

"""What a node may do with its credential: speak for itself, and work on what it was given.

These are the limits that `journeyman cluster manifests` asks of a real API server: `refusal` is what RBAC
says there, `change_refusal` what a ValidatingAdmissionPolicy says.  Pure: the HTTP surface asks and refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from journeyman.model.agentic_task import IN_FLIGHT, TaskPhase
from journeyman.model.inference import PLACED_ON
from journeyman.model.resources import (
    AGENT_RELEASES,
    AGENTIC_TASKS,
    AGENTS,
    FLEET_NODES,
    INFERENCE_SERVICES,
    MODELS,
    Resource,
)
from journeyman_plane.core import registration_limits
from journeyman_plane.core.paths import Target
from journeyman_plane.errors import RequestError

READING = frozenset({"get", "list", "watch"})
OWN_NODE = frozenset({"get", "create", "update", "patch", "delete"})
READABLE = frozenset(
    (each.group, each.plural) for each in (AGENTIC_TASKS, AGENTS, AGENT_RELEASES, INFERENCE_SERVICES, MODELS)
)
# Whose status is written by the node that has the task, or on which the service is placed.
STATUS_VERBS = {AGENTIC_TASKS: {"update", "patch"}, INFERENCE_SERVICES: {"patch"}}
# Of its own status, what the controllers write: the task that was scheduled, and the order to update.
CONTROLLERS_FIELDS = ("updateRequest", "currentTask")
# What holds an object back from its deletion, or ties its life to that of another one.
LIFE_FIELDS = ("finalizers", "ownerReferences")
_OPEN_PREFIXES = ("/api/", "/apis/", "/openapi/")
_OPEN_PATHS = frozenset({"/api", "/apis", "/version"})


def may_ask(node: str, method: str, path: str) -> bool:
    """Whether a node may use a path at all; what names objects is judged by `refusal`, too."""
    if path.startswith("/artifacts/"):
        return method in {"GET", "HEAD"}
    if path == f"/node-credentials/{node}":
        return method == "DELETE"
    return path in _OPEN_PATHS or path.startswith(_OPEN_PREFIXES)


def refusal(node: str, verb: str, target: Target) -> str:
    """Why a node may not do that, whatever it writes; empty if it may.

    Args:
        node: the name of its FleetNode.
        verb: as Kubernetes names verbs.
        target: what is read or written; a create names no object yet.
    """
    resource, what = target.resource, f"{verb} {target.resource.plural}"
    if target.subresource:
        what += f"/{target.subresource}"
    if _is(target, FLEET_NODES) and verb in OWN_NODE:
        own = verb == "create" or target.name == node
        return "" if own else f'node "{node}" may {what} for itself only'
    if (resource.group, resource.plural) in READABLE and verb in READING:
        return ""
    if registration_limits.is_registration(target) and not target.subresource:
        return "" if verb in registration_limits.VERBS else f'node "{node}" may not {what}'
    given = (verbs for each, verbs in STATUS_VERBS.items() if _is(target, each))
    if target.subresource == "status" and verb in next(given, ()):
        return ""
    return f'node "{node}" may not {what}'


def change_refusal(node: str, target: Target, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Why a node may not write that content, which `refusal` has let pass; empty if it may.

    Args:
        node: the name of its FleetNode.
        target: what is written.
        before: the stored object; empty for a new one.
        after: the object as it would be stored.
    """
    if registration_limits.is_registration(target):
        return registration_limits.change_refusal(node, target, before, after)
    if _is(target, INFERENCE_SERVICES):
        placed_on = ((before.get("metadata") or {}).get("annotations") or {}).get(PLACED_ON)
        return "" if placed_on == node else f'the service is not placed on node "{node}"'
    if _is(target, AGENTIC_TASKS):
        return _task_refusal(node, before.get("status") or {}, after.get("status") or {})
    if target.subresource == "status":
        return _status_refusal(before.get("status") or {}, after.get("status") or {})
    return _node_refusal(node, before.get("metadata") or {}, after)


def removal_refusal(node: str, target: Target, before: Mapping[str, Any]) -> str:
    """Why a node may not delete that object, which `refusal` has let pass; empty if it may."""
    is_registration = registration_limits.is_registration(target)
    return registration_limits.removal_refusal(node, before) if is_registration else ""


def forbidden(target: Target, why: str) -> RequestError:
    """The error, in the words of Kubernetes."""
    name = f' "{target.name}"' if target.name else ""
    return RequestError(
        f"{target.resource.qualified}{name} is forbidden: {why}", status=403, reason="Forbidden"
    )


def _is(target: Target, resource: Resource) -> bool:
    return (target.resource.group, target.resource.plural) == (resource.group, resource.plural)


def _node_refusal(node: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    metadata, spec = after["metadata"], after.get("spec") or {}
    if metadata["name"] != node or spec.get("nodeName") != node:
        return f'node "{node}" may be no other node'
    for name in LIFE_FIELDS:
        if (metadata.get(name) or []) != (before.get(name) or []):
            return f"a node may not write metadata.{name}"
    return ""


def _status_refusal(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    for name in CONTROLLERS_FIELDS:
        if before.get(name) != after.get(name):
            return f"status.{name} is written by the control plane alone"
    if _ready(before) != _ready(after):
        return "the condition Ready is written by the control plane alone"
    return ""


def _ready(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return next((each for each in status.get("conditions") or () if each.get("type") == "Ready"), None)


def _task_refusal(node: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if before.get("assignedNode") != node:
        return f'the task is not assigned to node "{node}"'
    if before.get("phase") not in IN_FLIGHT:
        return "the task has ended"
    keeps, is_pending = after.get("assignedNode") == node, after.get("phase") == TaskPhase.PENDING
    if after.get("assignedNode") and not keeps:
        return "a node may keep a task or hand it back, not give it to another node"
    # In flight without a node is the one state that no controller ever mends.
    if keeps == is_pending:
        return "a task that is handed back is Pending without a node, and no other is"
    return ""

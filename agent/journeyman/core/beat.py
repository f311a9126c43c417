"""What a heartbeat says, and what its reply means.

A heartbeat is one JSON merge patch on the FleetNode's status; its reply is the whole object and our only
regular input.  We write phase, lastHeartbeatTime, capability, agentVersion, agentKind, os and arch in each
beat; conditions of ours on transitions alone; currentTask, updateRequest and the condition Ready never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.core.gates.conditions import Told
from journeyman.model.fleet_node import (
    INSTANCE_ANNOTATION,
    LABEL_UPDATABLE,
    MODELS_ANNOTATION,
    AgentKind,
    Capability,
    FleetNode,
    FleetNodePhase,
)
from journeyman.model.meta import ConditionStatus, format_time
from journeyman.model.resources import FLEET_NODES

HELD = "Held"
# As OpenSSL words it (X509_verify_cert_error_string), and so Python's ssl.
_SIGNS_OF_A_WRONG_CLOCK = ("certificate is not yet valid", "certificate has expired")


@dataclass(frozen=True)
class Identity:
    """What does not change while the agent runs.

    Attributes:
        node_name: the name of our FleetNode.
        instance: a random id of this installation, by which two machines under one name are told apart.
        labels: the labels that we own, `journeyman.dev/agent` among them.
        roles: `spec.roles`.
        version: our version as releases spell it, without a leading "v".
        os: `darwin` or `linux`.
        arch: `amd64` or `arm64`.
        updates_by_release: whether AgentReleases may select this node (`agentKind` is set then).
    """

    node_name: str
    instance: str
    labels: Mapping[str, str]
    roles: tuple[str, ...]
    version: str
    os: str
    arch: str
    updates_by_release: bool


def beat_patch(
    identity: Identity, phase: FleetNodePhase, capability: Capability, now: datetime
) -> dict[str, Any]:
    """The merge patch of a regular heartbeat.

    Args:
        identity: who beats.
        phase: Ready or Draining.
        capability: complete, as a merge patch cannot say "the rest is unknown".
        now: by the server's clock, as the operator judges freshness by its own.
    """
    status: dict[str, Any] = {
        "phase": phase.value,
        "lastHeartbeatTime": format_time(now),
        "capability": capability.to_wire(),
        "agentVersion": identity.version,
        "os": identity.os,
        "arch": identity.arch,
    }
    if identity.updates_by_release:
        status["agentKind"] = AgentKind.FOREMAN_AGENT.value
    return {"status": status}


def parting_patch() -> dict[str, Any]:
    """The last beat before a silence on purpose.

    A heartbeat of null counts as stale at once, so nothing is scheduled here any more, and NotReady is
    not Draining, so the silence does not get the node reaped after ten minutes.
    """
    return {"status": {"phase": FleetNodePhase.NOT_READY.value, "lastHeartbeatTime": None}}


def registration(
    identity: Identity,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    roles: Sequence[str],
) -> dict[str, Any]:
    """The FleetNode to POST where there is none.

    Args:
        identity: who registers.
        labels: foreign ones that the node carried before it was deleted.
        annotations: likewise.
        roles: likewise.
    """
    return {
        "apiVersion": FLEET_NODES.api_version,
        "kind": FLEET_NODES.kind,
        "metadata": {
            "name": identity.node_name,
            "labels": {**labels, **identity.labels},
            "annotations": {**annotations, INSTANCE_ANNOTATION: identity.instance},
        },
        "spec": {"nodeName": identity.node_name, "roles": [*identity.roles, *roles]},
    }


def registration_patch(identity: Identity, node: FleetNode, roles: Sequence[str]) -> dict[str, Any] | None:
    """The merge patch that makes an existing FleetNode ours, or None if it is already.

    Foreign labels and annotations stay as they are.  The resourceVersion makes it a compare-and-set.

    Args:
        identity: who registers.
        node: as it is.
        roles: ours and those of others.
    """
    labels = {key: value for key, value in identity.labels.items() if node.metadata.labels.get(key) != value}
    patch: dict[str, Any] = {}
    if labels:
        patch["labels"] = labels
    if node.metadata.annotations.get(INSTANCE_ANNOTATION) != identity.instance:
        patch["annotations"] = {INSTANCE_ANNOTATION: identity.instance}
    spec_differs = node.spec.node_name != identity.node_name or set(node.spec.roles) != set(roles)
    if not patch and not spec_differs:
        return None
    patch["resourceVersion"] = node.metadata.resource_version
    changed: dict[str, Any] = {"metadata": patch}
    if spec_differs:
        changed["spec"] = {"nodeName": identity.node_name, "roles": list(roles)}
    return changed


def is_taken(identity: Identity, node: FleetNode, now: datetime) -> bool:
    """Whether another agent beats under our name: its heartbeat is fresh and its instance is not ours."""
    return beats_elsewhere(node, identity.instance, now)


def beats_elsewhere(node: FleetNode, instance: str | None, now: datetime) -> bool:
    """Whether a node is beaten for by another installation than this one.

    Args:
        node: as the control plane has it.
        instance: the id of this installation; None if it has none yet.
        now: by the server's clock.
    """
    return node.metadata.annotations.get(INSTANCE_ANNOTATION) != instance and not node.heartbeat_is_stale(now)


def held(summary: str) -> Told:
    """The condition that tells people why the node is Draining.

    Args:
        summary: who holds the node and why; empty if nobody does.
    """
    return Told(
        type=HELD,
        status=ConditionStatus.TRUE if summary else ConditionStatus.FALSE,
        reason="Held" if summary else "NotHeld",
        message=summary or "nobody holds this node",
    )


def metadata_patch(node: FleetNode, updatable: str, models: str | None) -> dict[str, Any] | None:
    """The merge patch of what changes seldom and has no place in the status; None if nothing has changed.

    Args:
        node: as the control plane has it.
        updatable: the label by which releases leave out a node that has to wait.
        models: what was measured of its models, for the annotation; empty for nothing, None for no news.
    """
    patch: dict[str, Any] = {}
    if node.metadata.labels.get(LABEL_UPDATABLE) != updatable:
        patch["labels"] = {LABEL_UPDATABLE: updatable}
    if models is not None and node.metadata.annotations.get(MODELS_ANNOTATION, "") != models:
        patch["annotations"] = {MODELS_ANNOTATION: models or None}
    return {"metadata": patch} if patch else None


def error_word(error: Exception | None) -> str:
    """Why a heartbeat failed, as the one word by which a release on trial is judged; empty for none.

    A certificate that is "not yet valid" or "expired" says as much about our clock as about the server, and
    neither is the fault of the release that reads it.
    """
    if error is None:
        return ""
    text = str(error)
    if any(sign in text for sign in _SIGNS_OF_A_WRONG_CLOCK):
        return "ClockWrong"
    return "Unreachable" if isinstance(error, TimeoutError) else type(error).__name__.removesuffix("Error")

"""How far a rollout has come on each node, and which node is asked next.

The rollout is decided from the release, its nodes and the time alone; `agent_release` turns it into the
release's status, and `update_requests` makes the nodes' `updateRequest` agree with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from journeyman.model.agent_release import (
    AgentRelease,
    NodeUpdatePhase,
    NodeUpdateReason,
    NodeUpdateStatus,
)
from journeyman.model.fleet_node import FleetNode
from journeyman.model.meta import whole_seconds
from journeyman_plane.core.versions import same_version


def targets_of(release: AgentRelease, nodes: Iterable[FleetNode]) -> list[FleetNode]:
    """The nodes that the release is for: of its agentKind, with labels that its selector matches."""
    return [
        node
        for node in nodes
        if node.status.agent_kind is release.spec.agent_kind
        and release.spec.selector.matches(node.metadata.labels)
    ]


def advance(release: AgentRelease, node: FleetNode, old: NodeUpdateStatus, now: datetime) -> NodeUpdateStatus:
    """Returns how far the node has come since `old`, without asking anything new of it.

    A node that runs the version must stay Ready, with fresh heartbeats, for the whole soak; whenever it is
    not, the soak starts over.  A node that was asked and neither soaks nor is done in time has failed.
    """
    if old.phase in (NodeUpdatePhase.UPDATED, NodeUpdatePhase.FAILED):
        return old
    gate = release.spec.health_gate
    if _runs_well(release, node, now):
        started = old.last_transition_time or whole_seconds(now)
        if now - started >= timedelta(seconds=gate.min_healthy_seconds):
            news = {
                "phase": NodeUpdatePhase.UPDATED,
                "last_transition_time": whole_seconds(now),
                "message": "",
            }
        else:
            news = {"last_transition_time": started, "message": "soaking"}
    elif old.dispatched_at is not None and now - old.dispatched_at > timedelta(seconds=gate.timeout_seconds):
        message = f"not healthy on {release.spec.version} within {gate.timeout_seconds} s"
        news = _failure(NodeUpdateReason.NODE_UPDATE_TIMEOUT, message)
    else:
        message = "" if old.phase is NodeUpdatePhase.UPDATING else _why_not_now(release, node, now)
        news = {"last_transition_time": None, "message": message}
    return _updated(old, {"observed_version": node.status.agent_version, **news})


def without_artifact(release: AgentRelease, node: FleetNode, status: NodeUpdateStatus) -> NodeUpdateStatus:
    """Fails a node that waits for an artifact which the release does not have.

    A node that does not say what it is cannot be judged, and one that runs the version needs none.
    """
    os, arch = node.status.os, node.status.arch
    if status.phase is not NodeUpdatePhase.PENDING or status.last_transition_time or not (os and arch):
        return status
    if release.spec.artifact_for(os, arch) or same_version(node.status.agent_version, release.spec.version):
        return status
    return _updated(status, _failure(NodeUpdateReason.NO_MATCHING_ARTIFACT, f"no artifact for {os}/{arch}"))


def can_be_asked(release: AgentRelease, node: FleetNode, status: NodeUpdateStatus, now: datetime) -> bool:
    """Whether the node waits for the version and could take it now."""
    return (
        status.phase is NodeUpdatePhase.PENDING
        and status.last_transition_time is None
        and not _why_not_now(release, node, now)
    )


def asked(status: NodeUpdateStatus, now: datetime) -> NodeUpdateStatus:
    """The status of a node that is asked now."""
    return _updated(
        status, {"phase": NodeUpdatePhase.UPDATING, "dispatched_at": whole_seconds(now), "message": ""}
    )


def recalled(status: NodeUpdateStatus) -> NodeUpdateStatus:
    """The status of a node whose request is taken back; it is asked anew later, and soaks anew."""
    if status.phase in (NodeUpdatePhase.UPDATED, NodeUpdatePhase.FAILED):
        return status
    return NodeUpdateStatus(
        name=status.name, observed_version=status.observed_version, phase=NodeUpdatePhase.PENDING
    )


def known_statuses(release: AgentRelease, nodes: Iterable[FleetNode]) -> list[NodeUpdateStatus]:
    """What the release knows of each of these nodes; Pending where it does not know one yet."""
    known = {item.name: item for item in release.status.node_statuses}
    names = [node.metadata.name for node in nodes]
    return [known.get(name) or NodeUpdateStatus(name=name, phase=NodeUpdatePhase.PENDING) for name in names]


def _runs_well(release: AgentRelease, node: FleetNode, now: datetime) -> bool:
    return same_version(node.status.agent_version, release.spec.version) and node.is_schedulable(now)


def _why_not_now(release: AgentRelease, node: FleetNode, now: datetime) -> str:
    if not node.is_schedulable(now):
        return "waits until the node is Ready"
    if not node.is_updatable:
        return "waits until the node can be updated"
    if release.spec.artifact_for(node.status.os, node.status.arch) is None:
        return "the node does not say its os and arch"
    return ""


def _failure(reason: NodeUpdateReason, message: str) -> dict[str, Any]:
    return {"phase": NodeUpdatePhase.FAILED, "reason": reason.value, "message": message}


def _updated(status: NodeUpdateStatus, news: dict[str, Any]) -> NodeUpdateStatus:
    # Nearly always there is nothing new, and a copy costs more than all the rest of the decision.
    if all(getattr(status, name) == value for name, value in news.items()):
        return status
    return status.model_copy(update=news)

"""Rolls an AgentRelease out over its nodes, a few at a time, and halts at the first that fails.

Differs from Foreman where its rollout can hurt: nothing fails for lack of an artifact before approval,
nodes that drain, are away or cannot be updated are not asked, the soak starts over when a node goes
unready, versions are compared by meaning, a node that answers one release is not asked by another, and
a pause takes back what was asked.  Succeeded and Failed are final, as there.
"""

from __future__ import annotations

from datetime import datetime

from journeyman.model.agent_release import (
    AgentRelease,
    AgentReleaseStatus,
    NodeUpdatePhase,
    NodeUpdateStatus,
    ReleasePhase,
)
from journeyman.model.fleet_node import FleetNode
from journeyman.model.meta import Condition, ConditionStatus, with_condition
from journeyman.model.resources import AGENT_RELEASES
from journeyman_plane.core import release_rollout as rollout
from journeyman_plane.core.actions import Chain, PatchStatus, key_of
from journeyman_plane.core.update_requests import has_foreign_request, nodes_being_updated
from journeyman_plane.core.world import World

FINAL = (ReleasePhase.SUCCEEDED, ReleasePhase.FAILED)


def roll_out_releases(world: World, now: datetime) -> list[Chain]:
    """Returns the new status of each release that is not finished, where it changes.

    Only status is decided here; `agree_update_requests` then asks the nodes that became Updating.

    Args:
        world: the objects.
        now: the time by the plane's clock.
    """
    nodes = world.nodes_by_name()
    releases = [item for item in world.releases_by_age() if item.status.phase not in FINAL]
    taken = set(nodes_being_updated(releases)) | {
        node.metadata.name for node in nodes if has_foreign_request(node)
    }
    chains = []
    for release in releases:
        statuses, phase = _decide(release, rollout.targets_of(release, nodes), taken, now)
        taken |= {item.name for item in statuses if item.phase is NodeUpdatePhase.UPDATING}
        status = _status(release, statuses, phase, now)
        if status != release.status:
            chains.append(Chain(f"release_{_WORDS[phase]}", (_patch(release, status),)))
    return chains


_WORDS = {
    ReleasePhase.AWAITING_APPROVAL: "awaits_approval",
    ReleasePhase.PAUSED: "paused",
    ReleasePhase.IN_PROGRESS: "advanced",
    ReleasePhase.SUCCEEDED: "succeeded",
    ReleasePhase.FAILED: "failed",
}


def _decide(
    release: AgentRelease, targets: list[FleetNode], taken: set[str], now: datetime
) -> tuple[list[NodeUpdateStatus], ReleasePhase]:
    known = rollout.known_statuses(release, targets)
    if release.spec.paused or not release.spec.approved:
        phase = ReleasePhase.PAUSED if release.spec.paused else ReleasePhase.AWAITING_APPROVAL
        return [rollout.recalled(status) for status in known], phase
    statuses = [
        rollout.without_artifact(release, node, rollout.advance(release, node, old, now))
        for node, old in zip(targets, known, strict=True)
    ]
    if any(item.phase is NodeUpdatePhase.FAILED for item in statuses):
        return statuses, ReleasePhase.FAILED
    if statuses and all(item.phase is NodeUpdatePhase.UPDATED for item in statuses):
        return statuses, ReleasePhase.SUCCEEDED
    return _dispatch(release, targets, statuses, taken, now), ReleasePhase.IN_PROGRESS


def _dispatch(
    release: AgentRelease,
    targets: list[FleetNode],
    statuses: list[NodeUpdateStatus],
    taken: set[str],
    now: datetime,
) -> list[NodeUpdateStatus]:
    room = release.spec.concurrency - sum(item.phase is NodeUpdatePhase.UPDATING for item in statuses)
    result = []
    for node, status in zip(targets, statuses, strict=True):
        free = node.metadata.name not in taken
        if room > 0 and free and rollout.can_be_asked(release, node, status, now):
            room -= 1
            result.append(rollout.asked(status, now))
        else:
            result.append(status)
    return result


def _status(
    release: AgentRelease, statuses: list[NodeUpdateStatus], phase: ReleasePhase, now: datetime
) -> AgentReleaseStatus:
    conditions = release.status.conditions
    for condition in _conditions(release, statuses, phase, now):
        conditions = with_condition(conditions, condition)
    return AgentReleaseStatus(
        phase=phase,
        observed_generation=release.metadata.generation,
        desired_version=release.spec.version,
        target_nodes=len(statuses),
        updated_nodes=sum(item.phase is NodeUpdatePhase.UPDATED for item in statuses),
        in_flight_nodes=tuple(item.name for item in statuses if item.phase is NodeUpdatePhase.UPDATING),
        node_statuses=tuple(statuses),
        conditions=conditions,
    )


def _conditions(
    release: AgentRelease, statuses: list[NodeUpdateStatus], phase: ReleasePhase, now: datetime
) -> list[Condition]:
    failed = next((item for item in statuses if item.phase is NodeUpdatePhase.FAILED), None)
    approved, complete = release.spec.approved, phase is ReleasePhase.SUCCEEDED
    halted = failed.reason if failed else "NoNodeFailed"
    facts = (
        ("Approved", approved, "Approved" if approved else "AwaitingApproval", ""),
        ("Complete", complete, "AllNodesUpdated" if complete else "NotAllNodesUpdated", ""),
        ("Halted", failed is not None, halted, f"{failed.name}: {failed.message}" if failed else ""),
    )
    return [
        Condition(
            type=kind,
            status=ConditionStatus.TRUE if holds else ConditionStatus.FALSE,
            reason=reason,
            message=message,
            last_transition_time=now,
        )
        for kind, holds, reason, message in facts
    ]


def _patch(release: AgentRelease, status: AgentReleaseStatus) -> PatchStatus:
    return PatchStatus(
        key_of(AGENT_RELEASES, release.metadata), status.to_wire(), release.metadata.resource_version
    )

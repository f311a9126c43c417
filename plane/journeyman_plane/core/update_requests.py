"""Makes the `updateRequest` of each node agree with the rollouts that are under way.

A request is owned by the release that an annotation on its node names.  It stands while that release is
in progress and is updating that node, and at no other time: pausing, ending, failing or deleting a
release takes its requests back.  A request without an owner was written by somebody else; it is never
touched, and while it is live its node is not asked by any release.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from journeyman.model.agent_release import AgentRelease, NodeUpdatePhase, ReleasePhase
from journeyman.model.fleet_node import FleetNode, UpdateRequest
from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core.actions import Action, Chain, PatchAnnotations, PatchStatus, key_of
from journeyman_plane.core.versions import same_version
from journeyman_plane.core.world import World

OWNER_ANNOTATION = "journeyman.dev/update-release"


def agree_update_requests(world: World, _now: datetime) -> list[Chain]:
    """Returns what to write to or clear from the nodes, so that their requests are those of the rollouts."""
    owners = nodes_being_updated(world.releases_by_age())
    chains = []
    for node in world.nodes_by_name():
        release = owners.get(node.metadata.name)
        wanted = request_for(release, node) if release else None
        if release and wanted:
            chains += _place(node, release, wanted)
        elif OWNER_ANNOTATION in node.metadata.annotations:
            chains.append(_chain("update_request_cleared", node, None, None))
    return chains


def nodes_being_updated(releases: Iterable[AgentRelease]) -> dict[str, AgentRelease]:
    """The release in progress that is updating each node; no node has two."""
    owners: dict[str, AgentRelease] = {}
    for release in releases:
        if release.status.phase is ReleasePhase.IN_PROGRESS:
            for status in release.status.node_statuses:
                if status.phase is NodeUpdatePhase.UPDATING:
                    owners.setdefault(status.name, release)
    return owners


def has_foreign_request(node: FleetNode) -> bool:
    """Whether somebody else's request is still to be answered by the node."""
    request = node.status.update_request
    return (
        request is not None
        and OWNER_ANNOTATION not in node.metadata.annotations
        and not same_version(request.target_version, node.status.agent_version)
    )


def request_for(release: AgentRelease, node: FleetNode) -> UpdateRequest | None:
    """What the release asks of that node, or None if it has nothing for its platform."""
    artifact = release.spec.artifact_for(node.status.os, node.status.arch)
    if artifact is None:
        return None
    return UpdateRequest(target_version=release.spec.version, url=artifact.url, sha256=artifact.sha256)


def _place(node: FleetNode, release: AgentRelease, wanted: UpdateRequest) -> list[Chain]:
    owner = node.metadata.annotations.get(OWNER_ANNOTATION)
    if node.status.update_request == wanted and owner == release.metadata.name:
        return []
    return [_chain("update_requested", node, release.metadata.name, wanted)]


def _chain(decision: str, node: FleetNode, owner: str | None, request: UpdateRequest | None) -> Chain:
    """Owner before request when placing, request before owner when clearing: no request is ever ownerless."""
    key, version = key_of(FLEET_NODES, node.metadata), node.metadata.resource_version
    own = PatchAnnotations(key, {OWNER_ANNOTATION: owner}, version)
    ask = PatchStatus(key, {"updateRequest": request.to_wire() if request else None}, version)
    actions: tuple[Action, ...] = (own, ask) if request else (ask, own)
    return Chain(decision, actions)

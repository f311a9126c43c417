"""Says which nodes are there: a fresh heartbeat makes a node Ready, a stale one NotReady.

A Draining node is its agent's business and is left alone here; `node_reaping` clears away those that fell
silent.  The agent's own word Ready or NotReady is overruled, as in Foreman: Draining is the only way in
which an agent can refuse work for longer than an instant.
"""

from __future__ import annotations

from datetime import datetime

from journeyman.model.fleet_node import FleetNode, FleetNodePhase
from journeyman.model.meta import Condition, ConditionStatus, find_condition, with_condition
from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core.actions import Chain, PatchStatus, key_of
from journeyman_plane.core.world import World

READY = "Ready"


def judge_heartbeats(world: World, now: datetime) -> list[Chain]:
    """Returns a patch for each node whose phase or Ready condition does not match its heartbeat.

    Args:
        world: the objects.
        now: the time by the plane's clock, which is the one that counts.
    """
    return [
        _patch(node, now)
        for node in world.nodes_by_name()
        if node.status.phase is not FleetNodePhase.DRAINING
        # A plane that was down leaves a stale node as it found it, until it has had the time to beat.
        and (world.is_lost(node, now) or not node.heartbeat_is_stale(now))
        and not _is_right(node, now)
    ]


def _is_right(node: FleetNode, now: datetime) -> bool:
    stale = node.heartbeat_is_stale(now)
    condition = find_condition(node.status.conditions, READY)
    return (
        condition is not None
        and condition.reason == _reason(stale)
        and node.status.phase is (FleetNodePhase.NOT_READY if stale else FleetNodePhase.READY)
    )


def _reason(stale: bool) -> str:  # noqa: FBT001  the one thing it depends on
    return "HeartbeatStale" if stale else "HeartbeatFresh"


def _patch(node: FleetNode, now: datetime) -> Chain:
    stale = node.heartbeat_is_stale(now)
    condition = Condition(
        type=READY,
        status=ConditionStatus.FALSE if stale else ConditionStatus.TRUE,
        reason=_reason(stale),
        message="no heartbeat for 90 seconds" if stale else "the heartbeat is fresh",
        last_transition_time=now,
    )
    phase = FleetNodePhase.NOT_READY if stale else FleetNodePhase.READY
    conditions = [item.to_wire() for item in with_condition(node.status.conditions, condition)]
    return Chain(
        "node_lost" if stale else "node_found",
        (
            PatchStatus(
                key_of(FLEET_NODES, node.metadata),
                {"phase": phase.value, "conditions": conditions},
                node.metadata.resource_version,
            ),
        ),
    )

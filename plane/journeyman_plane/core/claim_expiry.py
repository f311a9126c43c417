"""Takes tasks back from nodes that will not finish them.

The heartbeat of a node is the lease on its tasks.  A claim that expires is a strike, counted in an
annotation; the third one fails the task, as it is then more likely to be the cause than the victim.

Two holes of Foreman are mended here, neither of which costs a strike, because the task has done nothing:

- A task in flight without a node is ignored there for ever.  It arises when an agent claims without a
  resourceVersion in the instant in which its claim is expired.  It goes back to Pending.
- A task that was scheduled to a node which then drains, and was not claimed, waits there for ever if the
  agent does not hand it back.  After 90 seconds it goes back to Pending.
"""

from __future__ import annotations

from datetime import datetime

from journeyman.model.agentic_task import (
    CLAIM_EXPIRIES_ANNOTATION,
    AgenticTask,
    FailureReason,
    TaskPhase,
)
from journeyman.model.fleet_node import HEARTBEAT_STALE_AFTER, FleetNode, FleetNodePhase
from journeyman.model.meta import Condition, ConditionStatus, find_condition
from journeyman.model.resources import AGENTIC_TASKS
from journeyman_plane.core import task_status
from journeyman_plane.core.actions import Chain, PatchAnnotations, key_of
from journeyman_plane.core.world import World

STRIKES_ALLOWED = 2


def expire_claims(world: World, now: datetime) -> list[Chain]:
    """Returns what has to be done about each task in flight whose node does not, or cannot, go on with it.

    Args:
        world: the objects.
        now: the time by the plane's clock.
    """
    return [chain for task in world.tasks_in_flight() if (chain := _judge(task, world, now)) is not None]


def _judge(task: AgenticTask, world: World, now: datetime) -> Chain | None:
    if not task.status.assigned_node:
        return _without_strike(task, "NoAssignedNode", "in flight without a node", now)
    node = world.nodes.get(task.status.assigned_node)
    if node is None or world.is_lost(node, now):
        return _strike(task, now)
    if _was_left_unclaimed(task, node, now):
        return _without_strike(task, "NodeDraining", f"{node.metadata.name} drains and did not claim it", now)
    return None


def _was_left_unclaimed(task: AgenticTask, node: FleetNode, now: datetime) -> bool:
    if task.status.phase is not TaskPhase.SCHEDULED or node.status.phase is not FleetNodePhase.DRAINING:
        return False
    condition = find_condition(task.status.conditions, task_status.SCHEDULED)
    # Without the condition nobody knows since when; waiting for what nobody counts would be for ever.
    return condition is None or now - condition.last_transition_time > HEARTBEAT_STALE_AFTER


def _without_strike(task: AgenticTask, reason: str, message: str, now: datetime) -> Chain:
    return Chain("task_put_back", (task_status.put_back(task, _expired(reason, message, now), now),))


def _strike(task: AgenticTask, now: datetime) -> Chain:
    """The strike is counted first: if the chain breaks in between, the task is judged again, not forgiven."""
    strikes = task.claim_expiries + 1
    count = PatchAnnotations(
        key_of(AGENTIC_TASKS, task.metadata),
        {CLAIM_EXPIRIES_ANNOTATION: str(strikes)},
        task.metadata.resource_version,
    )
    message = f"{task.status.assigned_node} fell silent; claim expired {strikes} times"
    if strikes > STRIKES_ALLOWED:
        failed = task_status.failed(
            task, "ClaimExpiryLimitReached", message, now, FailureReason.INFRASTRUCTURE_ERROR
        )
        return Chain("task_failed", (count, failed))
    expired = _expired("HeartbeatStale", message, now)
    return Chain("claim_expired", (count, task_status.put_back(task, expired, now)))


def _expired(reason: str, message: str, now: datetime) -> Condition:
    return Condition(
        type="ClaimExpired",
        status=ConditionStatus.TRUE,
        reason=reason,
        message=message,
        last_transition_time=now,
    )

"""The status patches that the plane writes to tasks, one function for each thing that can happen."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from journeyman.model.agentic_task import AgenticTask, FailureReason, TaskPhase, TaskVerdict
from journeyman.model.meta import Condition, ConditionStatus, find_condition, format_time, with_condition
from journeyman.model.resources import AGENTIC_TASKS
from journeyman_plane.core.actions import PatchStatus, key_of

SCHEDULED = "Scheduled"


def scheduled(task: AgenticTask, node_name: str, now: datetime) -> PatchStatus:
    """Gives the task to a node."""
    message = f"assigned to FleetNode {node_name}"
    fields = {"phase": TaskPhase.SCHEDULED.value, "assignedNode": node_name}
    # Agents hand tasks back without touching this condition; its time must be that of this assignment.
    others = tuple(item for item in task.status.conditions if item.type != SCHEDULED)
    return _patch(task, fields, _true(SCHEDULED, "FleetNodeAssigned", message, now), others=others)


def waiting(task: AgenticTask, reason: str, message: str, now: datetime) -> PatchStatus | None:
    """Says why the task is not scheduled; None where the task says just that already."""
    old = find_condition(task.status.conditions, SCHEDULED)
    said = (
        old is not None
        and old.status is ConditionStatus.FALSE
        and (old.reason, old.message) == (reason, message)
    )
    if said and task.status.phase is TaskPhase.PENDING:
        return None
    return _patch(task, {"phase": TaskPhase.PENDING.value}, _false(SCHEDULED, reason, message, now))


def put_back(task: AgenticTask, condition: Condition, now: datetime) -> PatchStatus:
    """Takes the task from its node, so that it is scheduled anew."""
    fields = {"phase": TaskPhase.PENDING.value, "assignedNode": None, "claimedAt": None, "startedAt": None}
    return _patch(task, fields, condition, _false(SCHEDULED, condition.reason, condition.message, now))


def skipped(task: AgenticTask, dependency: str, now: datetime) -> PatchStatus:
    """Ends the task well without work: what it was for is done already."""
    message = f"the work of dependency {dependency} was already resolved"
    fields = _finished(TaskPhase.SUCCEEDED, TaskVerdict.SKIPPED, now)
    return _patch(task, fields, _true("Completed", "UpstreamAlreadyResolved", message, now))


def failed(
    task: AgenticTask, reason: str, message: str, now: datetime, failure: FailureReason | None = None
) -> PatchStatus:
    """Ends the task without a verdict of its own."""
    fields = _finished(TaskPhase.FAILED, TaskVerdict.INCOMPLETE, now)
    if failure is not None:
        fields["failureReason"] = failure.value
    return _patch(task, fields, _true("Failed", reason, message, now))


def _finished(phase: TaskPhase, verdict: TaskVerdict, now: datetime) -> dict[str, Any]:
    return {"phase": phase.value, "verdict": verdict.value, "finishedAt": format_time(now)}


def _true(kind: str, reason: str, message: str, now: datetime) -> Condition:
    return Condition(
        type=kind, status=ConditionStatus.TRUE, reason=reason, message=message, last_transition_time=now
    )


def _false(kind: str, reason: str, message: str, now: datetime) -> Condition:
    return Condition(
        type=kind, status=ConditionStatus.FALSE, reason=reason, message=message, last_transition_time=now
    )


def _patch(
    task: AgenticTask,
    fields: dict[str, Any],
    *conditions: Condition,
    others: tuple[Condition, ...] | None = None,
) -> PatchStatus:
    kept = task.status.conditions if others is None else others
    for condition in conditions:
        kept = with_condition(kept, condition)
    status = {**fields, "conditions": [condition.to_wire() for condition in kept]}
    return PatchStatus(key_of(AGENTIC_TASKS, task.metadata), status, task.metadata.resource_version)

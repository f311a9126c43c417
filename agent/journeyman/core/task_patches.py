"""What we write on an AgenticTask: the claim, the hand-back, and the end.

Each is a merge patch on `/status` with `metadata.resourceVersion`, so it is a compare-and-set: what the
control plane changed in between (an expired claim, a deletion) is never overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.model.agentic_task import AgenticTask, FailureReason, TaskPhase, TaskVerdict
from journeyman.model.meta import Condition, ConditionStatus, format_time, with_condition

# The API server refuses longer texts in places; a message is for people, and 512 characters tell them.
MESSAGE_LIMIT = 512


@dataclass(frozen=True)
class Ending:
    """How a task ended, ready to be written; kept in the outbox until the control plane has it.

    Attributes:
        phase: Succeeded for every delivered verdict, Failed where there is none.
        verdict: what came out.
        failure_reason: why it is no good verdict, or None.
        result: the envelope of the result.
        message: one line for people.
        finished_at: by the server's clock.
    """

    phase: TaskPhase
    verdict: TaskVerdict
    failure_reason: FailureReason | None
    result: Mapping[str, Any]
    message: str
    finished_at: datetime


def claim_patch(task: AgenticTask, node_name: str, now: datetime) -> dict[str, Any]:
    """Takes a task that is Scheduled on us: it is Running from `now`, by the server's clock."""
    condition = _condition("Running", ConditionStatus.TRUE, "Claimed", f"claimed by {node_name}", now)
    return _status_patch(
        task,
        condition,
        phase=TaskPhase.RUNNING.value,
        claimedAt=format_time(now),
        startedAt=format_time(now),
    )


def hand_back_patch(task: AgenticTask, why: str, now: datetime) -> dict[str, Any]:
    """Makes a task Pending again, so that the scheduler gives it to somebody else."""
    condition = _condition("Running", ConditionStatus.FALSE, "HandedBack", why, now)
    return _status_patch(
        task,
        condition,
        phase=TaskPhase.PENDING.value,
        assignedNode=None,
        claimedAt=None,
        startedAt=None,
    )


def ending_patch(task: AgenticTask, ending: Ending) -> dict[str, Any]:
    """Writes how the task ended."""
    succeeded = ending.phase is TaskPhase.SUCCEEDED
    condition = _condition(
        "Completed",
        ConditionStatus.TRUE if succeeded else ConditionStatus.FALSE,
        "ExecutorSucceeded" if succeeded else "ExecutorError",
        ending.message,
        ending.finished_at,
    )
    return _status_patch(
        task,
        condition,
        phase=ending.phase.value,
        verdict=ending.verdict.value,
        failureReason=None if ending.failure_reason is None else ending.failure_reason.value,
        result=dict(ending.result),
        finishedAt=format_time(ending.finished_at),
    )


def rejected_ending_patch(
    task: AgenticTask, ending: Ending, rejection: str, *, with_result: bool = True
) -> dict[str, Any]:
    """What is written where the API server refuses the ending itself (413, 422): better this than a wedge.

    Args:
        task: as it is now.
        ending: what was refused.
        rejection: why.
        with_result: whether to keep the result, which may be the very thing that is refused.
    """
    condition = _condition(
        "Completed", ConditionStatus.FALSE, "TerminalPatchRejected", rejection, ending.finished_at
    )
    return _status_patch(
        task,
        condition,
        phase=TaskPhase.FAILED.value,
        verdict=TaskVerdict.INCOMPLETE.value,
        failureReason=FailureReason.INFRASTRUCTURE_ERROR.value,
        **({"result": dict(ending.result)} if with_result else {}),
        finishedAt=format_time(ending.finished_at),
    )


def _condition(kind: str, status: ConditionStatus, reason: str, message: str, now: datetime) -> Condition:
    line = " ".join(message.split())
    return Condition(
        type=kind, status=status, reason=reason, message=line[:MESSAGE_LIMIT], last_transition_time=now
    )


def _status_patch(task: AgenticTask, condition: Condition, **fields: object) -> dict[str, Any]:
    conditions = with_condition(task.status.conditions, condition)
    return {
        "metadata": {"resourceVersion": task.metadata.resource_version},
        "status": {**fields, "conditions": [each.to_wire() for each in conditions]},
    }

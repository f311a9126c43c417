"""A finished task on its way to the control plane, as it lies in the outbox."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from journeyman.core.task_patches import Ending
from journeyman.core.task_plan import Claim
from journeyman.model.agentic_task import AgenticTask, FailureReason, TaskPhase, TaskVerdict
from journeyman.model.meta import format_time, parse_time


@dataclass(frozen=True)
class Delivery:
    """What is to be written, and the claim under which we may write it."""

    claim: Claim
    ending: Ending

    @property
    def entry_id(self) -> str:
        """One claim ends once, so an ending that is found twice is stored once."""
        return claim_id(self.claim)

    def to_json(self) -> dict[str, Any]:
        ending = self.ending
        return {
            "format": 1,
            "claim": claim_to_labels(self.claim),
            "phase": ending.phase.value,
            "verdict": ending.verdict.value,
            "failureReason": None if ending.failure_reason is None else ending.failure_reason.value,
            "result": dict(ending.result),
            "message": ending.message,
            "finishedAt": format_time(ending.finished_at),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Delivery:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is not a delivery.
        """
        try:
            reason = value["failureReason"]
            ending = Ending(
                phase=TaskPhase(value["phase"]),
                verdict=TaskVerdict(value["verdict"]),
                failure_reason=None if reason is None else FailureReason(reason),
                result=value["result"],
                message=value["message"],
                finished_at=parse_time(value["finishedAt"]),
            )
            return cls(claim_from_labels(value["claim"]), ending)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a delivery: {error}") from error


class Ownership(StrEnum):
    """What a fresh look at the task says about a delivery."""

    OURS = "ours"
    """It may be written."""
    LANDED = "landed"
    """An earlier attempt was stored, and only its reply was lost."""
    LOST = "lost"
    """Somebody else has the task, or has ended it."""


def proof(task: AgenticTask, delivery: Delivery, node_name: str) -> Ownership:
    """Whether we may still write that ending.

    Args:
        task: as the control plane has it now.
        delivery: what is to be written.
        node_name: who we are.
    """
    if not delivery.claim.holds(task, node_name):
        return Ownership.LOST
    if not task.is_terminal:
        return Ownership.OURS
    # A controller that gives up on a task may leave our claim on it; the time is whose ending it is.
    finished_at = task.status.finished_at
    # The wire has whole seconds.
    ours = finished_at is not None and format_time(finished_at) == format_time(delivery.ending.finished_at)
    return Ownership.LANDED if ours else Ownership.LOST


def where_it_is(task: AgenticTask) -> str:
    """Who has the task now, in a few words."""
    phase = task.status.phase or TaskPhase.PENDING
    node = f" on {task.status.assigned_node}" if task.status.assigned_node else ""
    return f"it is {phase.value}{node}"


def claim_id(claim: Claim) -> str:
    """A file name for a claim: unique, and stable over restarts of the agent."""
    return f"{claim.uid}-{int(claim.claimed_at.timestamp())}"


def claim_to_labels(claim: Claim) -> dict[str, str]:
    """The claim as flat text, for a worker's record."""
    return {
        "namespace": claim.namespace,
        "name": claim.name,
        "uid": claim.uid,
        "claimedAt": format_time(claim.claimed_at),
    }


def claim_from_labels(labels: dict[str, str]) -> Claim:
    """Reads what `claim_to_labels` wrote.

    Raises:
        ValueError: these labels are no claim's.
    """
    try:
        return Claim(
            namespace=labels["namespace"],
            name=labels["name"],
            uid=labels["uid"],
            claimed_at=parse_time(labels["claimedAt"]),
        )
    except KeyError as error:
        raise ValueError(f"no claim: {error} is missing") from error

"""From what a worker left, or from the lack of it, to the ending that is written on the task."""

from __future__ import annotations

from datetime import datetime

from journeyman.core.completion import Completion
from journeyman.core.freeform import Refusal
from journeyman.core.task_patches import Ending
from journeyman.core.verdict import SUMMARY_CHARACTERS, judge
from journeyman.model.agentic_task import (
    RESULT_SCHEMA_VERSION,
    FailureReason,
    TaskPhase,
    TaskVerdict,
)


def answered(completion: Completion, *, model: str, now: datetime) -> Ending:
    """The worker told the outcome.  The phase is Succeeded for every verdict: the task was worked on."""
    judgement = judge(completion, model=model)
    return Ending(
        phase=TaskPhase.SUCCEEDED,
        verdict=judgement.verdict,
        failure_reason=judgement.failure_reason,
        result=judgement.envelope,
        message=judgement.message,
        finished_at=now,
    )


def refused(refusal: Refusal, now: datetime) -> Ending:
    """The task cannot run here, whatever is tried."""
    return _without_answer(refusal.reason, refusal.message, "EXECUTOR-PRECONDITION-FAILED", now)


def broken(why: str, now: datetime) -> Ending:
    """The worker could not be started, or never told an outcome."""
    return _without_answer(FailureReason.INFRASTRUCTURE_ERROR, why, "LOOP-INCOMPLETE", now)


def _without_answer(reason: FailureReason, why: str, outcome: str, now: datetime) -> Ending:
    envelope = {
        "schemaVersion": RESULT_SCHEMA_VERSION,
        "kind": "native-agent-loop",
        "verdict": TaskVerdict.INCOMPLETE.value,
        "failureReason": reason.value,
        "summary": why[:SUMMARY_CHARACTERS],
        "extra": {"outcome": outcome, "error": why},
        "elapsedSec": 0,
    }
    return Ending(TaskPhase.FAILED, TaskVerdict.INCOMPLETE, reason, envelope, why, now)

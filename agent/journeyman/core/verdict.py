"""What a freeform task comes to: the verdict on a completion and its result envelope.

The envelope is the one that the operator reads back (`foreman.v1`); what is ours alone lies below
`extra.modelExtra`, where nothing of the operator's stands in the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from journeyman.core.completion import Completion, Trouble
from journeyman.model.agentic_task import FailureReason, TaskVerdict

SUMMARY_CHARACTERS = 280
# An object of the API may hold about a megabyte; this leaves room for all else even if each takes four bytes.
ANSWER_CHARACTERS = 128 * 1024

_REASONS = {
    Trouble.UNREACHABLE: FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
    Trouble.UNAUTHORIZED: FailureReason.AUTH_UNAVAILABLE,
    Trouble.REJECTED: FailureReason.CONSTRAINT_VIOLATED,
    Trouble.SERVER_ERROR: FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
    Trouble.TRUNCATED: FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
    Trouble.TIMEOUT: FailureReason.TIMEOUT,
}


@dataclass(frozen=True)
class Judgement:
    """A verdict with its reasons.

    Attributes:
        verdict: GO or INCOMPLETE.
        failure_reason: None for GO.
        message: one line for people; for GO the summary of the answer.
        envelope: the value of `status.result`.
    """

    verdict: TaskVerdict
    failure_reason: FailureReason | None
    message: str
    envelope: dict[str, Any]


def judge(completion: Completion, *, model: str) -> Judgement:
    """Judges an answer: GO is a non-empty one that the model itself ended.

    Args:
        completion: what came back.
        model: the model's name, for the record.
    """
    reason, message = _shortcoming(completion)
    verdict = TaskVerdict.GO if reason is None else TaskVerdict.INCOMPLETE
    answer = completion.text.strip()
    summary = answer[:SUMMARY_CHARACTERS] or message
    envelope: dict[str, Any] = {
        "schemaVersion": "foreman.v1",
        "kind": "native-agent-loop",
        "verdict": verdict.value,
        "summary": summary,
        "extra": {
            "outcome": "MODEL-DECIDED" if reason is None else "LOOP-INCOMPLETE",
            "turnCount": 1,
            "modelExtra": _model_extra(completion, model, answer),
        },
        "elapsedSec": round(completion.elapsed_seconds, 3),
    }
    if reason is not None:
        envelope["failureReason"] = reason.value
        envelope["extra"]["error"] = message
    return Judgement(verdict, reason, summary if reason is None else message, envelope)


def _shortcoming(completion: Completion) -> tuple[FailureReason | None, str]:
    if completion.trouble is not None:
        return _REASONS[completion.trouble], completion.message
    if completion.finish_reason == "length":
        limit = f"the answer was cut off after {completion.completion_tokens} tokens"
        return FailureReason.CONSTRAINT_VIOLATED, limit
    if completion.finish_reason != "stop":
        return FailureReason.MODEL_MISUNDERSTOOD, f"the model ended with {completion.finish_reason!r}"
    if not completion.text.strip():
        return FailureReason.MODEL_MISUNDERSTOOD, "the model answered nothing"
    return None, ""


def _model_extra(completion: Completion, model: str, answer: str) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "answer": answer[:ANSWER_CHARACTERS],
        "model": model,
        "finishReason": completion.finish_reason,
        "promptTokens": completion.prompt_tokens,
        "completionTokens": completion.completion_tokens,
    }
    if len(answer) > ANSWER_CHARACTERS:
        extra["answerTruncated"] = True
    for name, value in (
        ("firstTokenSeconds", completion.first_token_seconds),
        ("tokensPerSecond", completion.tokens_per_second),
    ):
        if value is not None:
            extra[name] = round(value, 3)
    return extra

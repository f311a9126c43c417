"""What an answer is worth."""

from __future__ import annotations

import json

import pytest

from journeyman.core.completion import Completion, Trouble
from journeyman.core.verdict import ANSWER_CHARACTERS, judge
from journeyman.model.agentic_task import FailureReason, TaskVerdict

WHOLE = Completion(
    text=" Red, yellow and blue.\n",
    finish_reason="stop",
    prompt_tokens=20,
    completion_tokens=7,
    first_token_seconds=0.12345,
    tokens_per_second=61.98765,
    elapsed_seconds=0.25,
)


def test_a_whole_answer_is_go() -> None:
    """GO carries the answer, its figures and a summary, and no failure reason."""
    judgement = judge(WHOLE, model="smol")
    assert (judgement.verdict, judgement.failure_reason) == (TaskVerdict.GO, None)
    assert judgement.envelope == {
        "schemaVersion": "foreman.v1",
        "kind": "native-agent-loop",
        "verdict": "GO",
        "summary": "Red, yellow and blue.",
        "extra": {
            "outcome": "MODEL-DECIDED",
            "turnCount": 1,
            "modelExtra": {
                "answer": "Red, yellow and blue.",
                "model": "smol",
                "finishReason": "stop",
                "promptTokens": 20,
                "completionTokens": 7,
                "firstTokenSeconds": 0.123,
                "tokensPerSecond": 61.988,
            },
        },
        "elapsedSec": 0.25,
    }


@pytest.mark.parametrize(
    ("completion", "reason", "message"),
    [
        (
            Completion("Red, ye", "length", completion_tokens=3),
            FailureReason.CONSTRAINT_VIOLATED,
            "cut off after 3 tokens",
        ),
        (Completion("", "stop"), FailureReason.MODEL_MISUNDERSTOOD, "answered nothing"),
        (Completion(" \n", "stop"), FailureReason.MODEL_MISUNDERSTOOD, "answered nothing"),
        (Completion("x", "tool_calls"), FailureReason.MODEL_MISUNDERSTOOD, "'tool_calls'"),
        *(
            (Completion("half", "", trouble, "why"), reason, "why")
            for trouble, reason in {
                Trouble.UNREACHABLE: FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
                Trouble.UNAUTHORIZED: FailureReason.AUTH_UNAVAILABLE,
                Trouble.REJECTED: FailureReason.CONSTRAINT_VIOLATED,
                Trouble.SERVER_ERROR: FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
                Trouble.TRUNCATED: FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
                Trouble.TIMEOUT: FailureReason.TIMEOUT,
            }.items()
        ),
    ],
)
def test_anything_less_is_incomplete(completion: Completion, reason: FailureReason, message: str) -> None:
    """Each shortcoming has its reason, its one line, and never a GO."""
    judgement = judge(completion, model="smol")
    assert (judgement.verdict, judgement.failure_reason) == (TaskVerdict.INCOMPLETE, reason)
    assert message in judgement.message
    assert judgement.envelope["failureReason"] == reason.value
    assert judgement.envelope["extra"]["outcome"] == "LOOP-INCOMPLETE"
    assert judgement.envelope["extra"]["error"] == judgement.message


@pytest.mark.parametrize("trouble", list(Trouble))
def test_every_trouble_has_a_reason(trouble: Trouble) -> None:
    """No trouble of a completion is without a failure reason."""
    assert judge(Completion(trouble=trouble, message="why"), model="m").failure_reason is not None


def test_a_summary_is_short_and_an_answer_bounded() -> None:
    """The summary has 280 characters, and no answer makes the object too large for the API."""
    judgement = judge(Completion("é" * (ANSWER_CHARACTERS + 1), "stop"), model="m")
    extra = judgement.envelope["extra"]["modelExtra"]
    assert judgement.envelope["summary"] == "é" * 280
    assert len(extra["answer"]) == ANSWER_CHARACTERS
    assert extra["answerTruncated"] is True
    assert len(json.dumps(judgement.envelope)) < 1_000_000

"""A freeform task: which model answers what, or why none can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from journeyman.model.agent import AgentPersona
from journeyman.model.agentic_task import AgenticTask, FailureReason, TaskKind


@dataclass(frozen=True)
class Question:
    """What to ask.

    Attributes:
        model: the name of a model that is served here.
        system: the persona's system prompt, or an empty string.
        prompt: what the task asks.
        temperature: the persona's, or None for the server's default.
        max_tokens: the longest answer, in tokens; 0 leaves it to the server's context.
        timeout_seconds: for the whole task; 0 is no limit.
    """

    model: str
    system: str
    prompt: str
    temperature: float | None
    max_tokens: int
    timeout_seconds: float


@dataclass(frozen=True)
class Refusal:
    """Why the task cannot run here."""

    reason: FailureReason
    message: str


def ask(task: AgenticTask, persona: AgentPersona | None, chat_models: Sequence[str]) -> Question | Refusal:
    """Turns a task into a question.

    Args:
        task: a task that we have claimed.
        persona: the Agent that it names, or None if it names none.
        chat_models: the models that talk here now, the preferred one first.
    """
    if task.spec.kind is not TaskKind.FREEFORM:
        return Refusal(
            FailureReason.INFRASTRUCTURE_ERROR,
            f"this agent runs freeform tasks; it has no executor for kind {task.spec.kind}",
        )
    prompt = f"{task.spec.payload.prompt_prefix}{task.spec.payload.prompt}"
    if not prompt.strip():
        return Refusal(FailureReason.CONSTRAINT_VIOLATED, "payload.prompt is empty")
    wanted = "" if persona is None else persona.model_name
    model = next((name for name in chat_models if wanted in {"", name}), None)
    if model is None:
        return Refusal(
            FailureReason.INFERENCE_SERVICE_UNAVAILABLE,
            f"this node serves no chat model {wanted}".rstrip(),
        )
    return Question(
        model=model,
        system="" if persona is None else persona.spec.system_prompt,
        prompt=prompt,
        temperature=_temperature(persona),
        max_tokens=0 if persona is None else persona.spec.max_output_tokens,
        timeout_seconds=task.spec.timeout_seconds or _loop_budget(persona),
    )


def _temperature(persona: AgentPersona | None) -> float | None:
    text = "" if persona is None else persona.spec.temperature
    return float(text) if text else None


def _loop_budget(persona: AgentPersona | None) -> int:
    """Despite its name, requestTimeoutSeconds is the budget of a persona's whole loop."""
    return 0 if persona is None else persona.spec.request_timeout_seconds

"""How fast a model server generates, and whether it passes tools on: what tells it, what is remembered."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

FORMAT_VERSION = 1
QUESTION = "Count from one to one hundred, in words."
# Long enough for a figure within a tenth, and short enough for nobody to notice.
MEASURED_TOKENS = 32
# Of fewer tokens the pauses between them say little.
FEWEST_TOKENS = 4
LONG_PROMPT_TOKENS = 2048
# For the chat template around a prompt, and for words that are longer in tokens than those that were counted.
SPARE_TOKENS = 256
# Asked first, for tokens a word and for seconds a token of this model on this host.
COUNTED_WORDS = 256
NEUTRAL = (
    "The road runs along the river for a while, past a mill and some fields, before it turns to the hills. "
    "In the morning there is often fog, and the people who live there wait until it has gone. "
)


class Quantity(StrEnum):
    """What is measured of a server, in this order."""

    SPEED = "speed"
    TOOLS = "tools"
    LONG_SPEED = "longSpeed"


SPEED = Quantity.SPEED
# What takes a host for longer than a moment.
LOADS = frozenset({Quantity.LONG_SPEED})


def tokens_per_second(tokens: int, first_at: float | None, last_at: float | None) -> float | None:
    """The speed of one answer, without the time for its prompt.

    Args:
        tokens: of the answer.
        first_at: seconds on some clock when the first of them came.
        last_at: the same of the last one.

    Returns:
        None if the answer is too short to tell.
    """
    if tokens < FEWEST_TOKENS or first_at is None or last_at is None or last_at <= first_at:
        return None
    return (tokens - 1) / (last_at - first_at)


def on_the_wire(speed: float | None) -> int:
    """Whole tokens a second, as a FleetNode has them; 0 means that nobody knows."""
    return 0 if speed is None else max(1, round(speed))


def fingerprint(served: bytes) -> str:
    """A short name for what a server serves and how, so that another configuration is measured anew."""
    return hashlib.sha256(served).hexdigest()[:32]


@dataclass(frozen=True)
class Measured:
    """What a model server was asked for while nobody wanted anything; None is what nobody knows yet.

    Attributes:
        tokens_per_second: of a short answer, soon after the start.
        long_tokens_per_second: of one behind a prompt of `LONG_PROMPT_TOKENS`.
        supports_tools: whether the tools that a request offers reach the model.
        skipped: why that is not known which was asked for in vain, by quantity.
    """

    tokens_per_second: float | None = None
    long_tokens_per_second: float | None = None
    supports_tools: bool | None = None
    skipped: Mapping[Quantity, str] = field(default_factory=dict)


Values = dict[Quantity, float]


def measured(values: Mapping[Quantity, float], skipped: Mapping[Quantity, str]) -> Measured:
    """What is known of one server, out of what is remembered of it."""
    tools = values.get(Quantity.TOOLS)
    return Measured(
        tokens_per_second=values.get(Quantity.SPEED),
        long_tokens_per_second=values.get(Quantity.LONG_SPEED),
        supports_tools=None if tools is None else bool(tools),
        skipped=skipped,
    )


def shown(known: Measured) -> dict[str, Any]:
    """The same for people, as the status has it."""
    return {
        "tokensPerSecond": known.tokens_per_second,
        "tokensPerSecondAt2k": known.long_tokens_per_second,
        "tokensPerSecondAt2kReason": known.skipped.get(Quantity.LONG_SPEED, ""),
        "supportsTools": known.supports_tools,
    }


def is_another(told: float | None, now: float) -> bool:
    """Whether a mean that changes with each stream has become another one: by a tenth."""
    return told is None or abs(now - told) > told / 10


def told_of(models: Mapping[str, Measured], sustained: Mapping[str, float]) -> str:
    """What was measured of the models of a node, as the value of an annotation; empty while nothing was.

    Args:
        models: by their names.
        sustained: the mean speed of their streams.
    """
    told: dict[str, dict[str, Any]] = {}
    for name, known in sorted(models.items()):
        values = {
            "tokensPerSecond": known.tokens_per_second,
            "tokensPerSecondAt2k": known.long_tokens_per_second,
            "sustainedTokensPerSecond": sustained.get(name),
            "supportsTools": known.supports_tools,
        }
        if found := {key: value for key, value in values.items() if value is not None}:
            told[name] = found
    return json.dumps(told, separators=(",", ":")) if told else ""


def why_no_long_prompt(context_tokens: int) -> str:
    """Why a server is not asked behind a long prompt; empty if it may be.

    Args:
        context_tokens: of each slot; 0 if nobody knows.
    """
    if context_tokens == 0:
        return "nobody knows its context"
    needed = LONG_PROMPT_TOKENS + MEASURED_TOKENS + SPARE_TOKENS
    return "" if context_tokens >= needed else f"its context of {context_tokens} tokens is below {needed}"


def long_text(words: int) -> str:
    """Neutral text of so many words."""
    sentence = NEUTRAL.split()
    return " ".join(itertools.islice(itertools.cycle(sentence), words))


def words_for_long_prompt(words: int, tokens: int) -> int:
    """How many words make a long prompt, where so many had so many tokens."""
    return words * LONG_PROMPT_TOKENS // max(tokens, 1)


def prompt_tokens(answer: Any) -> int:
    """How long a server says that the prompt was; 0 if it does not."""
    try:
        return int(answer["usage"]["prompt_tokens"])
    except (KeyError, TypeError, ValueError):
        return 0


def to_json(known: Mapping[str, Mapping[Quantity, float]], kept: Collection[str]) -> dict[str, Any]:
    """What is remembered; the speeds in the place where earlier releases look for them.

    Args:
        known: by fingerprint.
        kept: the fingerprints of what the host serves; others are forgotten.
    """
    found = {key: known[key] for key in known if key in kept}
    others = {key: {one: values[one] for one in values if one != SPEED} for key, values in found.items()}
    return {
        "format": FORMAT_VERSION,
        "speeds": {key: values[SPEED] for key, values in found.items() if SPEED in values},
        "others": {key: values for key, values in others.items() if values},
    }


def from_json(value: Mapping[str, Any] | None) -> dict[str, Values]:
    """Reads what `to_json` made; nothing is remembered where it is something else."""
    match value:
        case {"format": 1, "speeds": dict(speeds), "others": dict(others)}:
            pass
        case {"format": 1, "speeds": dict(speeds)}:
            others = {}
        case _:
            return {}
    known = {str(key): _numbers({SPEED: speed}) for key, speed in speeds.items()}
    for key, values in others.items():
        known.setdefault(str(key), {}).update(_numbers(values if isinstance(values, dict) else {}))
    return {key: values for key, values in known.items() if values}


def _numbers(told: Mapping[Any, Any]) -> Values:
    """The quantities that are known by name and have a number; a speed is never zero."""
    named = {one.value: one for one in Quantity}
    return {
        named[key]: float(value)
        for key, value in told.items()
        if key in named and isinstance(value, int | float) and value >= 0 and (value or key == Quantity.TOOLS)
    }

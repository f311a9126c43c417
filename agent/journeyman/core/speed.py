"""How fast a model server generates: which answers tell it, and what is remembered of it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

FORMAT_VERSION = 1
QUESTION = "Count from one to one hundred, in words."
# Long enough for a figure within a tenth, and short enough for nobody to notice.
MEASURED_TOKENS = 32
# Of fewer tokens the pauses between them say little.
FEWEST_TOKENS = 4


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


def to_json(speeds: Mapping[str, float], kept: Collection[str]) -> dict[str, Any]:
    """What is remembered.

    Args:
        speeds: tokens a second, by fingerprint.
        kept: the fingerprints of what the host serves; others are forgotten.
    """
    return {"format": FORMAT_VERSION, "speeds": {key: speeds[key] for key in speeds if key in kept}}


def from_json(value: Mapping[str, Any] | None) -> dict[str, float]:
    """Reads what `to_json` made; nothing is remembered where it is something else."""
    match value:
        case {"format": 1, "speeds": dict(speeds)}:
            return {
                str(key): float(speed)
                for key, speed in speeds.items()
                if isinstance(speed, int | float) and speed > 0
            }
    return {}

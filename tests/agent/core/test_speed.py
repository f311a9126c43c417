"""How fast an answer came, and what is remembered of it."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman.core import speed


def test_the_speed_is_that_after_the_first_token() -> None:
    """Thirty-three tokens have thirty-two pauses between them; the prompt's time is none of them."""
    assert speed.tokens_per_second(33, 100.0, 102.0) == 16.0


@pytest.mark.parametrize(
    ("tokens", "first_at", "last_at"), [(3, 1.0, 2.0), (0, None, None), (32, 1.0, 1.0), (32, 1.0, None)]
)
def test_an_answer_that_tells_nothing_has_no_speed(
    tokens: int, first_at: float | None, last_at: float | None
) -> None:
    """Too few tokens, or all of them at once."""
    assert speed.tokens_per_second(tokens, first_at, last_at) is None


def test_what_is_not_served_any_more_is_forgotten() -> None:
    """The file does not grow with every model that a host has ever had."""
    kept = speed.to_json({"a": 1.5, "b": 2.0}, {"a"})
    assert speed.from_json(kept) == {"a": 1.5}


@pytest.mark.parametrize(
    "value", [None, {}, {"format": 2, "speeds": {"a": 1}}, {"format": 1, "speeds": {"a": "fast", "b": -1}}]
)
def test_what_is_no_memory_is_measured_again(value: dict[str, Any] | None) -> None:
    """A damaged or foreign file costs a measurement, not the agent."""
    assert speed.from_json(value) == {}


def test_another_configuration_has_another_name() -> None:
    """A figure belongs to one configuration."""
    assert speed.fingerprint(b"a") != speed.fingerprint(b"b")

"""How fast an answer came, and what is remembered of it."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman.core import speed
from journeyman.core.speed import Quantity


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
    known = {"a": {Quantity.SPEED: 1.5, Quantity.TOOLS: 0.0}, "b": {Quantity.LONG_SPEED: 2.0}}
    assert speed.from_json(speed.to_json(known, {"a"})) == {"a": known["a"]}
    assert speed.from_json(speed.to_json(known, {"a", "b"})) == known


def test_releases_before_and_after_read_each_other() -> None:
    """A speed lies where it always lay, and what is new beside it; what comes later still is left out."""
    known = {"a": {Quantity.SPEED: 1.5, Quantity.TOOLS: 1.0}}
    assert speed.to_json(known, {"a"})["speeds"] == {"a": 1.5}
    assert speed.from_json({"format": 1, "speeds": {"a": 1.5}}) == {"a": {Quantity.SPEED: 1.5}}
    later = {"format": 1, "speeds": {}, "others": {"a": {"tools": 1.0, "taste": 3.0}}}
    assert speed.from_json(later) == {"a": {Quantity.TOOLS: 1.0}}


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"format": 2, "speeds": {"a": 1}},
        {"format": 1, "speeds": {"a": "fast", "b": -1, "c": 0}},
        {"format": 1, "speeds": {}, "others": {"a": [], "b": {"longSpeed": 0, "tools": "yes"}}},
    ],
)
def test_what_is_no_memory_is_measured_again(value: dict[str, Any] | None) -> None:
    """A damaged or foreign file costs a measurement, not the agent."""
    assert speed.from_json(value) == {}


@pytest.mark.parametrize(("tokens", "why"), [(0, "nobody knows"), (2048, "2048 tokens is below"), (4096, "")])
def test_a_context_has_to_hold_the_long_prompt(tokens: int, why: str) -> None:
    """The prompt, its template and the answer; of an unknown context nothing is tried."""
    told = speed.why_no_long_prompt(tokens)
    assert why in told
    assert bool(told) is bool(why)


def test_a_long_prompt_has_the_words_that_its_tokens_want() -> None:
    """By what a server counted of fewer words; its text goes round."""
    assert speed.words_for_long_prompt(256, 512) == 1024
    assert len(speed.long_text(1000).split()) == 1000
    assert speed.prompt_tokens({"usage": {"prompt_tokens": 7}}) == 7
    assert speed.prompt_tokens({"usage": None}) == speed.prompt_tokens([]) == 0


def test_people_are_shown_what_is_not_known_with_its_reason() -> None:
    """No figure is made up."""
    known = speed.measured({Quantity.SPEED: 3.0}, {Quantity.LONG_SPEED: "too short"})
    assert speed.shown(known) == {
        "tokensPerSecond": 3.0,
        "tokensPerSecondAt2k": None,
        "tokensPerSecondAt2kReason": "too short",
        "supportsTools": None,
    }


def test_a_node_tells_of_its_models_what_is_known() -> None:
    """By their names, compactly, and nothing at all while nothing was measured."""
    known = {"b": speed.measured({Quantity.TOOLS: 0.0}, {}), "a": speed.measured({Quantity.SPEED: 2.5}, {})}
    assert speed.told_of({**known, "c": speed.Measured()}, {"a": 2.25, "gone": 9.0}) == (
        '{"a":{"tokensPerSecond":2.5,"sustainedTokensPerSecond":2.25},"b":{"supportsTools":false}}'
    )
    assert speed.told_of({"c": speed.Measured()}, {}) == ""


def test_a_mean_is_told_anew_once_it_is_another_one() -> None:
    """Each stream changes it a little, and no write to the control plane is worth that."""
    assert speed.is_another(None, 1)
    assert not speed.is_another(40, 43.9)
    assert speed.is_another(40, 35)


def test_another_configuration_has_another_name() -> None:
    """A figure belongs to one configuration."""
    assert speed.fingerprint(b"a") != speed.fingerprint(b"b")

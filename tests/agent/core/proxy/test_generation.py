"""What is seen in a reply that passes by, however it is cut."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.proxy.figures import Ending, Figures, Outcome
from journeyman.core.proxy.generation import Generation
from tests.support.scripted_server import DONE, delta, event

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]}
QUOTED = '"finish_reason":"stop" "error": "x" [DONE]'


def seen(*events: object, streamed: bool = True) -> Generation:
    """A generation that was fed with one event a second."""
    generation = Generation(streamed=streamed)
    for second, one in enumerate(events):
        generation.feed(event(one), float(second))
    return generation


@given(cut=st.lists(st.integers(0, 400), max_size=6))
def test_it_sees_the_same_however_the_stream_is_cut(cut: list[int]) -> None:
    """Packets end anywhere, in the middle of a line or of a character."""
    data = b"".join(map(event, [ROLE, delta("ü"), delta(QUOTED), delta(finish_reason="stop"), DONE]))
    generation = Generation(streamed=True)
    edges = [0, *sorted(min(at, len(data)) for at in cut), len(data)]
    for begin, end in itertools.pairwise(edges):
        generation.feed(data[begin:end], 1.0)
    assert (generation.tokens, generation.finished, generation.error) == (2, True, "")


def test_the_role_alone_is_no_token() -> None:
    """The first token is the first text, not the empty event that some servers begin with."""
    generation = seen(ROLE, ROLE, delta("a"), delta("b"))
    assert (generation.first_at, generation.last_at, generation.tokens) == (2.0, 3.0, 2)


def test_text_that_looks_like_an_end_is_none() -> None:
    """What the model says about finish reasons and errors is text."""
    generation = seen(delta(QUOTED))
    assert (generation.finished, generation.error) == (False, "")


@pytest.mark.parametrize(
    ("told", "error"),
    [
        ({"error": {"code": 500, "message": "no more"}}, "no more"),
        ({"error": "short"}, "short"),
        ({"error": None, "choices": []}, ""),
    ],
)
def test_an_error_inside_a_stream_is_seen(told: dict[str, object], error: str) -> None:
    """llama.cpp says it in an event of a 200."""
    assert seen(delta("a"), told).error == error


def test_the_servers_own_count_wins() -> None:
    """Tokens without text of their own are counted by the server alone."""
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 17}}
    assert seen(delta("a"), delta(finish_reason="stop"), usage).tokens == 17
    timings = {**delta(finish_reason="stop"), "timings": {"predicted_n": 12}}
    assert seen(delta("a"), timings).tokens == 12


def test_a_whole_answer_is_counted_by_its_usage() -> None:
    """What is no stream says its tokens at its end, also across two packets."""
    body = json.dumps({"choices": [{"message": {"content": "x" * 9000}}], "usage": {"completion_tokens": 9}})
    generation = Generation(streamed=False)
    for part in (body[:-5], body[-5:]):
        generation.feed(part.encode(), 0.0)
    assert generation.tokens == 9


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    """Ten megabytes without a line break are passed on, not kept."""
    generation = Generation(streamed=True)
    for _ in range(160):
        generation.feed(b"x" * 65_536, 0.0)
    assert len(generation._rest) <= 1024 * 1024


def test_figures_are_prometheus_text() -> None:
    """Counters, gauges and the histogram of the first token, with whatever a model is called."""
    figures = Figures()
    figures.add('a"b\\', Ending(Outcome.DONE, 0.5, 3.0, 0.2, 21, 2.0))
    figures.add('a"b\\', Ending(Outcome.REFUSED))
    text = figures.text(running={"a": 1}, waiting={"a": 2_000_001}, connections=3).decode()
    for line in (
        'journeyman_proxy_requests_total{model="a\\"b\\\\",outcome="done"} 1',
        'journeyman_proxy_requests_total{model="a\\"b\\\\",outcome="refused"} 1',
        'journeyman_proxy_tokens_total{model="a\\"b\\\\"} 21',
        'journeyman_proxy_tokens_per_second{model="a\\"b\\\\"} 10.000000',
        'journeyman_proxy_requests_waiting{model="a"} 2000001',
        'journeyman_proxy_first_token_seconds_bucket{model="a\\"b\\\\",le="0.1"} 0',
        'journeyman_proxy_first_token_seconds_bucket{model="a\\"b\\\\",le="0.25"} 1',
        'journeyman_proxy_first_token_seconds_count{model="a\\"b\\\\"} 1',
        "journeyman_proxy_connections 3",
    ):
        assert line in text.splitlines()


def test_retry_after_grows_with_the_queue_and_is_bounded() -> None:
    """A full queue in front of a slow model asks for more patience than one in front of a fast one."""
    figures = Figures()
    assert figures.retry_after_seconds("m", 64, 1) == 1
    figures.add("m", Ending(Outcome.DONE, seconds=2.0))
    assert figures.retry_after_seconds("m", 10, 1) == 10
    assert figures.retry_after_seconds("m", 10, 2) == 5
    assert figures.retry_after_seconds("m", 10_000, 1) == 60

"""Since when nobody has used a server."""

from __future__ import annotations

import pytest

from journeyman.core.idleness import Idleness, look_for_use
from journeyman.core.liveness import Traffic

SEEN = Idleness(100.0, asked=7)


@pytest.mark.parametrize(
    ("traffic", "in_use"),
    [
        (Traffic(1, 5, asked=7), False),
        (Traffic(0, 5, waiting=1, asked=7), False),
        (Traffic(0, 5, asked=8), False),
        (Traffic(0, 0, asked=2), False),
        (Traffic(0, 5, asked=7), True),
    ],
    ids=["stream", "held", "asked-and-done", "another-proxy", "task"],
)
def test_whoever_uses_it_begins_the_idle_time_anew(traffic: Traffic, *, in_use: bool) -> None:
    """A stream, a request that is held, one that came and went since, and a task of ours are uses."""
    assert look_for_use(SEEN, traffic, in_use=in_use, now=130.0) == Idleness(130.0, traffic.asked)


def test_without_use_the_idle_time_goes_on() -> None:
    """The same figures as at the last look mean that nobody has come."""
    assert look_for_use(SEEN, Traffic(0, 5, asked=7), in_use=False, now=130.0) == SEEN


def test_a_proxy_that_cannot_be_asked_may_have_a_stream() -> None:
    """What nobody can say counts as use, and the next figures have nothing to be compared with."""
    unknown = look_for_use(SEEN, None, in_use=False, now=130.0)
    assert unknown == Idleness(130.0)
    assert look_for_use(unknown, Traffic(0, 5, asked=7), in_use=False, now=140.0) == Idleness(140.0, 7)

"""One odd Date header moves nobody."""

from __future__ import annotations

import pytest

from journeyman.core.clock_offset import ClockOffset


def believed(*measured: float) -> float:
    offset = ClockOffset()
    for each in measured:
        offset = offset.after(each)
    return offset.reported()


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        ((), 0.0),
        ((0.4,), 0.0),
        ((1.9,), 0.0),
        ((300.5,), 0.0),
        ((300.5, 0.3), 0.0),
        ((300.5, 300.7), 300.7),
        ((0.0, 600.0), 0.0),
        ((0.0, 600.0, 0.3), 0.0),
        ((0.0, 600.0, -600.0, 600.0), 0.0),
        ((0.0, 600.0, 601.0), 601.0),
        ((0.0, 3.0), 3.0),
        ((300.0, 300.0, 0.5), 300.0),
        ((300.0, 300.0, 0.5, 0.5), 0.0),
        ((0.0, 600.0, 0.0, 600.0), 0.0),
    ],
)
def test_a_jump_counts_once_it_is_said_twice(measured: tuple[float, ...], expected: float) -> None:
    """A reply that differs from what is believed needs one that agrees, and so does the very first one."""
    assert believed(*measured) == expected

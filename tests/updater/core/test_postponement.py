"""What an update waits for: its hour, its turn, and the gates' word on a fetch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from journeyman_updater.core.postponement import check_gates, check_window, turn_seconds
from journeyman_updater.errors import PostponedError, Reason

# A Monday, noon.
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def report(*gates: tuple[str, str], age_seconds: float = 10.0) -> dict[str, Any]:
    return {
        "writtenAt": (NOW - timedelta(seconds=age_seconds)).isoformat(),
        "gates": [
            {"name": name, "level": level, "reasons": [{"code": "LowSpace", "message": ""}]}
            for name, level in gates
        ],
    }


def test_outside_the_window_it_is_said_when_it_opens() -> None:
    """A closed window postpones, and its message says until when; an open one and none at all do not."""
    with pytest.raises(PostponedError, match="until Mon 2026-06-01 22:00") as caught:
        check_window("22:00-06:00", NOW, in_utc)
    assert caught.value.reason is Reason.OUTSIDE_WINDOW
    check_window("12:00-13:00", NOW, in_utc)
    check_window(None, NOW, in_utc)


def test_the_window_is_in_local_time() -> None:
    """The same moment is inside in one zone and outside in another."""
    check_window("21:00-22:00", NOW, lambda moment: moment.astimezone(timezone(timedelta(hours=9))))
    with pytest.raises(PostponedError):
        check_window("21:00-22:00", NOW, in_utc)


def test_a_window_that_cannot_be_read_is_closed() -> None:
    """A state document that was edited by hand into nonsense never means always."""
    with pytest.raises(PostponedError, match="cannot be read") as caught:
        check_window("nightly", NOW, in_utc)
    assert caught.value.reason is Reason.OUTSIDE_WINDOW


@pytest.mark.parametrize("gate", ["disk", "metered"])
def test_a_closed_gate_that_concerns_a_fetch_delays_it(gate: str) -> None:
    """Disk and metered link hold a fetch back, with their reason."""
    with pytest.raises(PostponedError, match=rf"{gate} \(LowSpace\)") as caught:
        check_gates(report((gate, "hold")), NOW, longest_age_seconds=120)
    assert caught.value.reason is Reason.GATE_CLOSED


@pytest.mark.parametrize(
    "said",
    [
        None,
        {},
        {"writtenAt": "yesterday", "gates": []},
        {"writtenAt": "2026-06-01T12:00:00", "gates": [{"name": "disk", "level": "hold", "reasons": []}]},
        {"writtenAt": NOW.isoformat(), "gates": {"disk": "hold"}},
        {"writtenAt": NOW.isoformat(), "gates": [{"name": "disk"}]},
        report(("disk", "open"), ("thermal", "kill"), ("power", "hold"), ("memory", "drain")),
        report(("disk", "hold"), age_seconds=121),
        report(("disk", "hold"), age_seconds=-3600),
    ],
    ids=[
        "no file", "empty", "no time", "no zone", "another shape", "a field missing",
        "other gates", "old", "from a time to come",
    ],
)  # fmt: skip
def test_what_is_stale_missing_or_no_business_of_a_fetch_is_no_veto(said: dict[str, Any] | None) -> None:
    """A broken agent cannot keep its own repair away, and heat does not delay a transfer."""
    check_gates(said, NOW, longest_age_seconds=120)


def test_each_host_has_its_own_turn_and_keeps_it() -> None:
    """Turns lie within the spread, are the same each time, and differ by host and by release."""
    turns = [turn_seconds(f"node-{number}", "ab" * 32, spread_seconds=100) for number in range(1000)]
    assert turns == [turn_seconds(f"node-{number}", "ab" * 32, spread_seconds=100) for number in range(1000)]
    assert 0 <= min(turns) < max(turns) < 100
    # Tenths of the spread are filled evenly: 100 of 1000 each, within five standard deviations.
    tenths = [sum(int(turn // 10) == tenth for turn in turns) for tenth in range(10)]
    assert all(50 < count < 150 for count in tenths)
    assert turn_seconds("node-1", "cd" * 32, spread_seconds=100) != turns[1]
    assert turn_seconds("node-1", "ab" * 32, spread_seconds=0) == 0

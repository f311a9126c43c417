"""When an update may start by itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from journeyman_updater.core.window import parse_window

BERLIN = ZoneInfo("Europe/Berlin")


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def to_berlin(moment: datetime) -> datetime:
    return moment.astimezone(BERLIN)


@pytest.mark.parametrize(
    ("window", "local", "is_open"),
    [
        # 2026-06-01 is a Monday.
        ("Mon-Fri 22:00-06:00", "2026-06-01T21:59:59", False),
        ("Mon-Fri 22:00-06:00", "2026-06-01T22:00", True),
        ("Mon-Fri 22:00-06:00", "2026-06-02T05:59:59", True),
        ("Mon-Fri 22:00-06:00", "2026-06-02T06:00", False),
        ("Mon-Fri 22:00-06:00", "2026-06-06T03:00", True),
        ("Mon-Fri 22:00-06:00", "2026-06-06T22:00", False),
        ("Mon-Fri 22:00-06:00", "2026-06-01T03:00", False),
        ("Sun 22:00-06:00", "2026-06-01T03:00", True),
        ("Fri-Mon 01:00-02:00", "2026-06-01T01:30", True),
        ("Fri-Mon 01:00-02:00", "2026-06-02T01:30", False),
        ("sat,SUN 00:00-24:00", "2026-06-06T23:59", True),
        ("02:00-03:00", "2026-06-03T02:30", True),
        ("Mon 01:00-02:00; Wed 03:00-04:00", "2026-06-03T03:30", True),
        ("Mon 01:00-02:00; Wed 03:00-04:00", "2026-06-03T01:30", False),
        ("Tue 12:00-12:01", "2026-06-02T12:00:59", True),
    ],
)
def test_the_local_wall_clock_decides(window: str, local: str, *, is_open: bool) -> None:
    """Days and hours are those of the wall clock; the night belongs to the day on which it begins."""
    assert parse_window(window).is_open(berlin(local)) is is_open


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no range"),
        ("Mon-Fri", "is no range"),
        ("Mon-Fri 22:00", "is no range"),
        ("22:00-6:00", "is no range"),
        ("Mon 22:00-06:00,Tue 01:00-02:00", "is no range"),
        ("Mon 01:00-02:00;", "is no range"),
        ("Foo 22:00-06:00", "'Foo' is no day"),
        ("Mon- 22:00-06:00", "'' is no day"),
        ("Mon 22:60-06:00", "22:60 is no time"),
        ("Mon 24:01-06:00", "24:01 is no time"),
        ("Mon 06:00-06:00", "has no length"),
        ("Mon 24:00-06:00", "has no length"),
    ],
)
def test_what_is_no_window_is_one_clear_line(text: str, message: str) -> None:
    """The part that is wrong is named, and nothing is guessed."""
    with pytest.raises(ValueError, match=message) as caught:
        parse_window(text)
    assert "\n" not in str(caught.value)


def test_the_spelling_is_kept() -> None:
    """A window is shown as it was written, but for needless spaces, and read again the same."""
    window = parse_window("  Mon-Fri   22:00-06:00;Sat 00:00-24:00 ")
    assert window.spelled == "Mon-Fri 22:00-06:00;Sat 00:00-24:00"
    assert parse_window(window.spelled) == window


def test_the_next_opening_is_found_across_days() -> None:
    """Closed on Saturday, it opens on Monday evening; while it is open, that is this minute."""
    window = parse_window("Mon 22:00-06:00")
    saturday = berlin("2026-06-06T12:00:30")
    assert window.next_opening(saturday, to_berlin) == berlin("2026-06-08T22:00")
    assert window.next_opening(berlin("2026-06-08T23:30:30"), to_berlin) == berlin("2026-06-08T23:30")


def test_the_hour_that_summer_time_skips_opens_nothing() -> None:
    """On 2026-03-29 there is no 02:30 in Berlin; a weekly window of that hour opens a week later."""
    before = berlin("2026-03-29T00:00")
    assert parse_window("Sun 02:00-03:00").next_opening(before, to_berlin) == berlin("2026-04-05T02:00")
    assert parse_window("Sun 02:30-03:30").next_opening(before, to_berlin) == berlin("2026-03-29T03:00")


def test_the_night_of_a_change_ends_at_the_hour_that_is_written() -> None:
    """A night window closes at 06:00 by the clock, whether the night has 7, 8 or 9 hours."""
    window = parse_window("Sat 22:00-06:00")
    for day, hours in (("2026-03-28", 7), ("2026-10-24", 9), ("2026-06-06", 8)):
        start = berlin(f"{day}T22:00").astimezone(UTC)
        minutes = [window.is_open(to_berlin(start + timedelta(minutes=step))) for step in range(12 * 60)]
        assert minutes.index(False) == hours * 60
        assert not any(minutes[hours * 60 :])


def test_the_hour_that_occurs_twice_opens_twice() -> None:
    """On 2026-10-25 both 02:30 in Berlin lie in a window that names that hour."""
    window = parse_window("Sun 02:00-03:00")
    assert window.is_open(berlin("2026-10-25T02:30", fold=0))
    assert window.is_open(berlin("2026-10-25T02:30", fold=1))

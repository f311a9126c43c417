"""The maintenance window: when an update that nobody at this host asked for may start.

    Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00

Ranges are separated by semicolons.  Days come first, as names or spans of names, separated by commas; without
them each day is meant.  A range that ends before it begins runs into the next day and belongs to the day on
which it begins.  The local wall clock decides, minute by minute: a window never reaches beyond the hours that
are written, an hour that summer time skips opens nothing, and one that occurs twice opens twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY_MINUTES = 24 * 60
_RANGE = re.compile(r"(?:(?P<days>[A-Za-z, -]+?)\s+)?(?P<from>\d\d:\d\d)\s*-\s*(?P<to>\d\d:\d\d)")
# One week and a day: a weekly range that an hour of summer time has swallowed opens a week later.
_LOOK_AHEAD_MINUTES = 15 * _DAY_MINUTES
_EXAMPLE = "write it like `Mon-Fri 22:00-06:00; Sat,Sun 00:00-24:00`"


@dataclass(frozen=True)
class Range:
    """One range of the window.

    Attributes:
        days: on which it begins; 0 is Monday.
        start: minutes after midnight.
        end: minutes after midnight of the day on which it begins; above 1440 in the next day.
    """

    days: frozenset[int]
    start: int
    end: int


@dataclass(frozen=True)
class Window:
    """All ranges, and how they were spelled."""

    spelled: str
    ranges: tuple[Range, ...]

    def is_open(self, local: datetime) -> bool:
        """Whether an update may start at that local time."""
        minute = local.hour * 60 + local.minute
        return any(
            (local.weekday() in item.days and item.start <= minute < item.end)
            or ((local.weekday() - 1) % 7 in item.days and minute + _DAY_MINUTES < item.end)
            for item in self.ranges
        )

    def next_opening(self, now: datetime, to_local: Callable[[datetime], datetime]) -> datetime | None:
        """The first minute from `now` on at which it is open, in local time.

        Args:
            now: the wall clock, aware.
            to_local: the rules of the local time zone.

        Returns:
            None if it does not open within two weeks.
        """
        # In UTC, as steps of a local clock would run through hours that do not exist.
        minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        for ahead in range(_LOOK_AHEAD_MINUTES):
            local = to_local(minute + timedelta(minutes=ahead))
            if self.is_open(local):
                return local
        return None


def parse_window(text: str) -> Window:
    """Reads a window.

    Raises:
        ValueError: one line that says which part is wrong, and how it is written.
    """
    parts = [part.strip() for part in text.split(";")]
    return Window(" ".join(text.split()), tuple(_range(part) for part in parts))


def _range(part: str) -> Range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f"{part[:60]!r} is no range of the window; {_EXAMPLE}")
    start, end = _minutes(match["from"]), _minutes(match["to"])
    if start in {end, _DAY_MINUTES}:
        raise ValueError(f"{part[:60]!r} has no length; write 00:00-24:00 for a whole day")
    days = _days(match["days"]) if match["days"] else frozenset(range(7))
    return Range(days, start, end if end > start else end + _DAY_MINUTES)


def _minutes(text: str) -> int:
    hours, minutes = int(text[:2]), int(text[3:])
    found = hours * 60 + minutes
    if minutes > 59 or found > _DAY_MINUTES:  # noqa: PLR2004
        raise ValueError(f"{text} is no time of the day; it goes from 00:00 to 24:00")
    return found


def _days(text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        first, dash, last = (name.strip() for name in item.partition("-"))
        start = _day(first)
        length = (_day(last) - start) % 7 if dash else 0
        found |= {(start + step) % 7 for step in range(length + 1)}
    return frozenset(found)


def _day(name: str) -> int:
    try:
        return DAYS.index(name.capitalize())
    except ValueError:
        raise ValueError(f"{name!r} is no day of the week; they are {', '.join(DAYS)}") from None

"""Sources that say the same thing for ever although they should move: not believed any more.

PRoot binds constant files over /proc (proot-distro's sysdata.py); some boards show a constant temperature.
"""

from __future__ import annotations

from dataclasses import dataclass

PROOT_BANNED = frozenset({"loadavg", "stat", "vmstat", "uptime", "version"})


@dataclass(frozen=True)
class Moves:
    """What was seen of one source.

    Attributes:
        text: what it said last.
        since: since when it has said so, in seconds of any steady clock.
        reads: how often in a row.
    """

    text: str
    since: float
    reads: int = 1


def seen(before: Moves | None, text: str, now: float) -> Moves:
    """The record after one more read."""
    if before is None or before.text != text:
        return Moves(text, now)
    return Moves(text, before.since, before.reads + 1)


def is_frozen(moves: Moves, now: float, *, reads: int, for_seconds: float) -> bool:
    """Whether it has repeated itself that often and for that long."""
    return moves.reads >= reads and now - moves.since >= for_seconds

"""Why this node takes no new work: a set of owners, each with a reason and, perhaps, an end.

The wire has one durable way to say "do not schedule me": phase Draining with heartbeats that go on
(Ready is what the operator writes itself, and NotReady with a fresh heartbeat is turned back into Ready
within a reconcile).  So the node is Draining while anybody holds it, and Ready when nobody does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


class Owner(StrEnum):
    """Who may hold the node."""

    GATE = "gate"
    USER = "user"
    REMOTE = "remote"
    UPDATE = "update"
    SHUTDOWN = "shutdown"


@dataclass(frozen=True)
class Hold:
    """One owner's reason to keep work away.

    Attributes:
        owner: who holds; there is at most one hold for each owner.
        reason: one line for people.
        since: when it began, UTC.
        until: when it ends by itself, or None if somebody has to lift it.
    """

    owner: Owner
    reason: str
    since: datetime
    until: datetime | None = None


@dataclass(frozen=True)
class Holds:
    """The owner set.  It never changes; each method returns a new one."""

    held: tuple[Hold, ...] = ()

    def with_hold(self, hold: Hold) -> Holds:
        """The set in which this hold replaces the owner's former one."""
        return replace(self, held=(*self.without(hold.owner).held, hold))

    def without(self, owner: Owner) -> Holds:
        """The set without that owner's hold; the same set where there is none."""
        return replace(self, held=tuple(hold for hold in self.held if hold.owner is not owner))

    def live(self, now: datetime) -> Holds:
        """The set without the holds whose time is over."""
        return replace(self, held=tuple(hold for hold in self.held if not _over(hold, now)))

    def of(self, owner: Owner) -> Hold | None:
        """That owner's hold, or None."""
        return next((hold for hold in self.held if hold.owner is owner), None)

    def summary(self) -> str:
        """One line that says who holds the node, why and until when; empty if nobody does."""
        return "; ".join(_sentence(hold) for hold in sorted(self.held, key=lambda hold: hold.owner))

    def __bool__(self) -> bool:
        return bool(self.held)


def _over(hold: Hold, now: datetime) -> bool:
    return hold.until is not None and now >= hold.until


def _sentence(hold: Hold) -> str:
    end = "" if hold.until is None else f" until {hold.until:%Y-%m-%dT%H:%M:%SZ}"
    return f"{hold.owner}: {hold.reason}{end}"

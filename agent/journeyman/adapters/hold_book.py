"""The holds of this node: those of people survive a restart, the others are said anew by those who hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import structlog

from journeyman.core.holds import Hold, Holds, Owner
from journeyman.errors import HostError
from journeyman.model.meta import format_time, parse_time
from journeyman.ports import Document

log = structlog.get_logger(__name__)

# Whoever far away asked for a hold is not asked again while the control plane cannot be reached.
PEOPLE = (Owner.USER, Owner.REMOTE)


class HoldBook:
    """Keeps the owner set.

    Args:
        document: where the holds of people are kept.
        changed: called when the set has changed.
    """

    def __init__(self, document: Document, changed: Callable[[], None]) -> None:
        self._document = document
        self._changed = changed
        self._holds = _read(document.load())

    def live(self, now: datetime) -> Holds:
        """The holds of this moment; one whose time is over is forgotten."""
        live = self._holds.live(now)
        if live != self._holds:
            try:
                self._replace(live)
            except HostError as error:
                # The next agent forgets it just as well.
                log.warning("holds_not_kept", error=str(error))
                self._holds = live
        return live

    def has(self, owner: Owner) -> bool:
        """Whether that owner holds the node."""
        return self._holds.of(owner) is not None

    def hold(self, hold: Hold) -> None:
        """Keeps work away for that owner.  Raises HostError if a hold of people cannot be kept."""
        self._replace(self._holds.with_hold(hold))

    def follow(self, owner: Owner, wanted: Hold | None) -> None:
        """Makes that owner's hold the wanted one; the same words again change nothing.

        Raises HostError if it cannot be kept.
        """
        now = self._holds.of(owner)
        if wanted is None:
            self.release(owner)
        elif now is None or (now.reason, now.until) != (wanted.reason, wanted.until):
            self.hold(wanted)

    def release(self, owner: Owner) -> None:
        """Lets that owner's hold go; nothing happens if there is none."""
        if self._holds.without(owner) != self._holds:
            self._replace(self._holds.without(owner))

    def _replace(self, holds: Holds) -> None:
        before = self._holds
        if _of_people(before) != _of_people(holds):
            self._document.save({"format": 1} | _of_people(holds))
        self._holds = holds
        log.info("holds_changed", holds=holds.summary())
        self._changed()


def _of_people(holds: Holds) -> dict[str, Any]:
    """What outlives the agent, by owner.  Releases before the owner `remote` read the user's alone."""
    return {owner.value: [_to_json(hold) for hold in holds.held if hold.owner is owner] for owner in PEOPLE}


def _to_json(hold: Hold) -> dict[str, Any]:
    return {
        "reason": hold.reason,
        "since": format_time(hold.since),
        "until": None if hold.until is None else format_time(hold.until),
    }


def _read(value: dict[str, Any] | None) -> Holds:
    holds = Holds()
    for owner in PEOPLE:
        for each in (value or {}).get(owner.value, []):
            until = None if each["until"] is None else parse_time(each["until"])
            holds = holds.with_hold(Hold(owner, each["reason"], parse_time(each["since"]), until))
    return holds

"""Which holds outlive the agent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.hold_book import HoldBook
from journeyman.core.holds import Hold, Owner
from journeyman.errors import HostError
from tests.support.clock import START

UNTIL = START + timedelta(hours=1)


class FullDisk:
    """A document that can be read and not written."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def load(self) -> dict[str, Any]:
        return self._value

    def save(self, value: Mapping[str, Any]) -> None:
        raise HostError("no space left")


def test_the_holds_of_people_survive_a_restart(tmp_path: Path) -> None:
    """Near and far: neither is asked again, which matters while the control plane cannot be reached."""
    book = HoldBook(JsonFile(tmp_path / "holds.json"), lambda: None)
    book.hold(Hold(Owner.USER, "lunch", START))
    book.follow(Owner.REMOTE, Hold(Owner.REMOTE, "cordon: disk", START, UNTIL))
    book.hold(Hold(Owner.UPDATE, "an update", START))
    again = HoldBook(JsonFile(tmp_path / "holds.json"), lambda: None)
    assert again.live(START).summary() == "remote: cordon: disk until 2026-01-01T13:00:00Z; user: lunch"
    assert not again.live(UNTIL).of(Owner.REMOTE)


def test_the_same_words_again_change_nothing(tmp_path: Path) -> None:
    """Each heartbeat repeats them, and a change would ask for a heartbeat."""
    changes: list[str] = []
    book = HoldBook(JsonFile(tmp_path / "holds.json"), lambda: changes.append("changed"))
    for later in range(3):
        since = START + timedelta(seconds=later)
        book.follow(Owner.REMOTE, Hold(Owner.REMOTE, "cordon: disk", since, UNTIL))
    assert len(changes) == 1
    book.follow(Owner.REMOTE, None)
    book.follow(Owner.REMOTE, None)
    assert len(changes) == 2


def test_a_hold_ends_on_a_full_disk_too() -> None:
    """What is over is over, whether or not that can be written down."""
    stored = {
        "format": 1,
        "user": [{"reason": "lunch", "since": "2026-01-01T11:00:00Z", "until": "2026-01-01T12:30:00Z"}],
    }
    book = HoldBook(FullDisk(stored), lambda: None)
    assert book.live(START).of(Owner.USER)
    assert not book.live(UNTIL)
    assert not book.has(Owner.USER)

"""What is kept on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from journeyman.ports.json_object import JsonObject


class Document(Protocol):
    """One small JSON object on disk that is read and replaced as a whole."""

    def load(self) -> JsonObject | None:
        """The object; None where there is none, and where it cannot be read (it is set aside then)."""
        ...

    def save(self, value: Mapping[str, Any]) -> None:
        """Replaces the object durably.  Raises HostError, and then the old one is still there."""
        ...


class RemovableDocument(Document, Protocol):
    """One that is not for ever."""

    def remove(self) -> None:
        """Removes it durably; nothing happens if there is none.  Raises HostError."""
        ...


@dataclass(frozen=True)
class DeadLetter:
    """Something that was set aside, for a person to look at.

    Attributes:
        entry_id: what it was called in the spool.
        why: one line; empty where nobody could write it down.
        value: what it says, or None if it cannot be read.
        place: where it lies.
    """

    entry_id: str
    why: str
    value: JsonObject | None
    place: str


class Spool(Protocol):
    """JSON objects that must outlive the process until somebody else has them, oldest first."""

    def put(self, entry_id: str, value: Mapping[str, Any]) -> None:
        """Stores the entry durably, in place of an older one of that id.  Raises HostError."""
        ...

    def entries(self) -> list[tuple[str, JsonObject]]:
        """All entries by age.  One that cannot be read is set aside, not returned."""
        ...

    def remove(self, entry_id: str) -> None:
        """Forgets the entry durably; nothing happens if there is none."""
        ...

    def set_aside(self, entry_id: str, why: str) -> None:
        """Moves an entry that can never be delivered out of the way, for a person to look at.

        Of those only the newest hundred are kept.  Raises HostError.
        """
        ...

    def dead_letters(self) -> list[DeadLetter]:
        """What was set aside, oldest first."""
        ...

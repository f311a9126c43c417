"""What the journal records: each step before it is taken, and how an update ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Step(StrEnum):
    """What is about to be done, or (the last four) how an update ended."""

    FETCH = "fetch"
    STAGE = "stage"
    DRAIN = "drain"
    ACTIVATE = "activate"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    RETIRE = "retire"
    """Versions that nothing names any more are about to be deleted."""
    ALLOW = "allow"
    """A person lets a rejected release be tried again, at this host or by an annotation of its node."""
    PIN = "pin"
    """A person changed the pin."""
    WINDOW = "window"
    """A person changed the maintenance window."""
    SOURCE = "source"
    """A person let this host follow its control plane, or no longer."""
    RENEW = "renew"
    """Updater and guard are about to become those of the active release."""
    RENEWED = "renewed"
    NOT_RENEWED = "not_renewed"
    """They stay what they are; the detail says why."""

    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"
    """Nothing was stopped; the detail says why."""
    INCONCLUSIVE = "inconclusive"
    """The trial goes on; the detail says what keeps it from being judged."""


RENEWALS = frozenset({Step.RENEW, Step.RENEWED, Step.NOT_RENEWED})
"""Steps of the updater that replaces itself."""
ASIDE = RENEWALS | {Step.RETIRE, Step.ALLOW, Step.PIN, Step.WINDOW, Step.SOURCE}
"""Steps that belong to no update: they neither begin nor end one."""


@dataclass(frozen=True)
class Record:
    """One line of the journal.

    Attributes:
        seq: grows by one with each record, across rotations.
        boot_id: of the boot in which it was written.
        mono_ns: the monotonic clock of that boot; no decision rests on the wall clock.
        at: the wall clock, for people.
        release: the version as the request spelled it.
        attempt: how many starts of the trial were charged when it was written.
        sha: of the artifact.
        step: see `Step`; kept as text, so that an older updater can read a newer one's journal.
        detail: reason codes, tokens, evidence.
    """

    seq: int
    boot_id: str
    mono_ns: int
    at: str
    release: str
    attempt: int
    sha: str
    step: str
    detail: dict[str, Any] = field(default_factory=dict)

    def to_line(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Record | None:
        """Reads what `to_line` made; None for a line of another kind."""
        if not all(name in line for name in cls.__dataclass_fields__):
            return None
        return cls(**{name: line[name] for name in cls.__dataclass_fields__})

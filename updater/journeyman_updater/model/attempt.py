"""The guard's file `attempts`: the starts of a trial, and the starts that were given back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Attempt:
    """One line of the file.  The guard writes it before it execs, so a start that never got there counts.

    Attributes:
        event: `start`, or `refund` for one that gives a start back.
        nonce: of the trial, or of the active release for starts outside a trial.
        boot: in which boot.
        pid: of the guard, and so of the agent that it became.
        why: the reason of a refund.
    """

    event: str
    nonce: str
    boot: str
    pid: int
    why: str = ""

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Attempt | None:
        """None for a line of another kind."""
        try:
            return cls(
                event=str(line["event"]),
                nonce=str(line["nonce"]),
                boot=str(line["boot"]),
                pid=int(line["pid"]),
                why=str(line.get("why", "")),
            )
        except (KeyError, ValueError, TypeError, OverflowError):
            return None

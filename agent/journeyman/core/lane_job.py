"""One job of the host lane that has been granted, as the agent that runs it remembers it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from journeyman.core.failure import Failure, Surroundings
from journeyman.core.gates.admission import Reservation
from journeyman.core.gates.ladder import Action, Job
from journeyman.core.lane import Grant, Receipt
from journeyman.model.meta import format_time
from journeyman_updater.contract import WorkerExit, WorkerRecord


@dataclass
class LaneJob:
    """A job and what was seen of it; the clock is the monotonic one, which stops while the host sleeps.

    Attributes:
        job_id: its worker's id.
        grant: what it was given.
        before: the host when it was granted, or adopted.
        record: its worker; None while that is about to start.
        ram_bytes, written_bytes: what it used at the last look.
        peak_bytes: the most memory at any look; None before the first.
        stopped_by: why we ended it, or an empty string.
        still_since: since when it stands still, or None.
        still_seconds: how long it has stood still before that.
        steps: what the gates did to it.
    """

    job_id: str
    grant: Grant
    before: Surroundings
    record: WorkerRecord | None = None
    ram_bytes: int = 0
    written_bytes: int = 0
    peak_bytes: int | None = None
    stopped_by: str = ""
    still_since: float | None = None
    still_seconds: float = 0.0
    steps: list[dict[str, Any]] = field(default_factory=list)

    def reservation(self) -> Reservation:
        """What counts as given, in full or as far as readings do not show it yet."""
        grant = self.grant
        return Reservation(self.job_id, grant.lead, grant.need, grant.granted_at, self.ram_bytes)

    def seen(self, ram_bytes: int, written_bytes: int) -> Job:
        """Takes in what it uses now, and shows it to the ladder.  No job of the lane is ever run again."""
        self.ram_bytes, self.written_bytes = ram_bytes, written_bytes
        self.peak_bytes = max(self.peak_bytes or 0, ram_bytes)
        return Job(
            self.job_id, self.grant.granted_at, ram_bytes, written_bytes, retriable=False,
            capabilities=self.grant.need.capabilities,
        )  # fmt: skip

    def left_seconds(self, now: float) -> float | None:
        """How much of its time is left, the time in which it stood still aside; None if it has no end."""
        if self.grant.timeout_seconds is None:
            return None
        still = self.still_seconds + (0.0 if self.still_since is None else now - self.still_since)
        return self.grant.timeout_seconds - (now - self.grant.granted_at - still)

    def turn_still(self, now: float, *, still: bool) -> bool:
        """Whether that changes anything."""
        if still == (self.still_since is not None):
            return False
        if self.still_since is not None:
            self.still_seconds += now - self.still_since
        self.still_since = now if still else None
        return True

    def note(self, action: Action, now: datetime) -> None:
        """Puts a step of the ladder down for the receipt."""
        step = {"do": action.do.value, "gate": action.gate, "reason": action.reason}
        self.steps.append({"at": format_time(now), **step})

    def receipt(
        self, ended: WorkerExit | None, failure: Failure, now: datetime, *, error: str = ""
    ) -> dict[str, Any]:
        """What became of it, and why."""
        used = [self.peak_bytes or 0, (ended and ended.max_rss_bytes) or 0]
        started_at = "" if self.record is None else self.record.started_at
        return Receipt(
            self.job_id, self.grant, started_at, now, ended, failure,
            peak_bytes=max(used) or None, steps=self.steps, error=error,
        ).to_json()  # fmt: skip

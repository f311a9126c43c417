"""Whether a clean-up gave the disk back what it promised; by statvfs before and after, never by file sizes.

A clean-up is announced as the reading `disk.reclaim_promised`: by the ladder when it ends who has written
most, or by a line of a trace.  Until its effect is known, and where it has none, the disk gate asks for no
further end of running work, short of the last mark: what did not help once would be repeated for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from journeyman.core.gates.machine import Reason
from journeyman.core.gates.marks import DiskMarks
from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict
from journeyman.core.quantities import bytes_text
from journeyman.model.readings import Reading

PROMISED = "disk.reclaim_promised"
DISK_GATE = "disk"
INEFFECTIVE = "ReclaimIneffective"


@dataclass(frozen=True)
class Reclaim:
    """One clean-up.

    Attributes:
        signal: the free space that is watched: of the work directory that had least of it.
        promised_bytes: what it said it would give back.
        before_bytes: what was free before it.
        began: when it was announced, boot-time clock.
        after_bytes: what was free when it had had its time; None before.
        ineffective: whether that was too little.
        past: whether the gate has opened since; the next closing is another story.
    """

    signal: str
    promised_bytes: float
    before_bytes: float
    began: float
    after_bytes: float | None = None
    ineffective: bool = False
    past: bool = False

    @property
    def reason(self) -> Reason:
        freed = max(0.0, (self.after_bytes or 0.0) - self.before_bytes)
        message = f"a clean-up promised {bytes_text(self.promised_bytes)} and gave {bytes_text(freed)} back"
        return Reason(INEFFECTIVE, message)


def reclaim_was_ineffective(
    marks: DiskMarks, promised_bytes: float, before_bytes: float, after_bytes: float
) -> bool:
    """Whether a clean-up freed so little of what it promised that repeating it is no use.

    Args:
        marks: the settings.
        promised_bytes: what the clean-up said it would delete, by its own count of file sizes.
        before_bytes: free bytes by statvfs before it.
        after_bytes: free bytes by statvfs after it.
    """
    freed = max(0.0, after_bytes - before_bytes)
    return promised_bytes > 0 and freed < promised_bytes * marks.reclaim_effective_percent / 100


def next_reclaim(
    reclaim: Reclaim | None, before: Iterable[Reading], readings: Iterable[Reading], marks: DiskMarks
) -> Reclaim | None:
    """The clean-up after one sweep.

    Args:
        reclaim: the one that was known, or None.
        before: the readings of the sweep before, by which it was decided upon.
        readings: those of this sweep.
        marks: the settings.
    """
    found = {reading.key: reading for reading in readings if reading.known}
    promise = next((one for one in found.values() if one.name == PROMISED and one.value), None)
    if promise is not None and (reclaim is None or promise.boot_seconds > reclaim.began):
        reclaim = _begun(promise, before)
    if reclaim is None or reclaim.after_bytes is not None:
        return reclaim
    free = found.get(reclaim.signal)
    if free is None or free.value is None:
        return reclaim
    if free.boot_seconds < reclaim.began + marks.reclaim_settle_seconds:
        return reclaim
    useless = reclaim_was_ineffective(marks, reclaim.promised_bytes, reclaim.before_bytes, free.value)
    return replace(reclaim, after_bytes=free.value, ineffective=useless)


def _begun(promise: Reading, before: Iterable[Reading]) -> Reclaim | None:
    """None where nobody knows how much was free."""
    free = [
        (one.value, one.key)
        for one in before
        if one.known and one.value is not None and one.name.startswith("disk.") and one.name.endswith(".free")
    ]
    if not free or promise.value is None:
        return None
    least, signal = min(free)
    return Reclaim(signal, promise.value, least, promise.boot_seconds)


def with_reclaim(gate: GateVerdict, reclaim: Reclaim | None) -> GateVerdict:
    """The disk gate in the light of the clean-up; all others, and an open one, as they are."""
    if reclaim is None or reclaim.past or gate.name != DISK_GATE:
        return gate
    if gate.level is Level.OPEN or gate.forced_until is not None:
        return gate
    asks = gate.pressing if gate.pressing is Level.KILL else min(gate.pressing, Level.HOLD)
    reasons = (*gate.reasons, reclaim.reason) if reclaim.ineffective else gate.reasons
    return replace(gate, pressing=asks, reasons=reasons)

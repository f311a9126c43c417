"""A state document made anew from the journal, for the day on which state.json cannot be read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.release import Sha256, Slot, VersionId
from journeyman_updater.model.state import Rejection, StateDocument, Status


def rebuild(history: Sequence[Record], installed: Collection[Slot]) -> StateDocument:
    """Keeps what protects: what was committed, what was rejected, the highest sequence.

    A trial is over.  What people decided (pin, keys, source) is lost and has its defaults, under which
    nothing is updated until somebody decides again.

    Args:
        history: the journal, oldest first.
        installed: the valid versions that lie here.
    """
    status = Status()
    known = {slot.sha256: slot for slot in installed}
    for record in history:
        if record.step == Step.COMMIT and record.sha in known:
            status = _committed(status, record, known[Sha256(record.sha)])
        elif record.step == Step.ROLLBACK:
            status = _undone(status, record)
        elif record.step == Step.ALLOW:
            status = status.allowing(str(record.detail.get("sha256")))
    if status.active is None:
        # As the guard does: what was installed and never updated has no record.
        fit = [slot for slot in installed if not status.has_rejected(slot.sha256)]
        newest = max(fit, key=lambda slot: slot.sequence, default=None)
        status = replace(status, active=replace(newest, nonce="rebuilt") if newest else None)
    return StateDocument(status=status)


def _committed(status: Status, record: Record, slot: Slot) -> Status:
    sequence = int(record.detail.get("sequence", 0))
    active = Slot(VersionId(record.release), slot.sha256, str(record.detail["nonce"]), sequence)
    sequence = max(status.sequence, sequence)
    undone = status.others_undone(slot.sha256)
    return Status(active, status.active, None, status.rejected, sequence, undone)


def _undone(status: Status, record: Record) -> Status:
    reason, evidence = str(record.detail.get("reason")), str(record.detail.get("evidence"))
    if record.detail.get("rejects"):
        return status.rejecting(Rejection(record.release, record.sha, reason, evidence))
    slot = Slot(VersionId(record.release), Sha256(record.sha))
    return status.undoing(slot, reason, record.boot_id, record.mono_ns)

"""Whether people far away let a release be tried again that this host holds something against."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from journeyman_updater.contract.allow import Allowance, parse_allowance
from journeyman_updater.core.repeats import is_over
from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.release import UpdateRequest
from journeyman_updater.model.state import Status


def allowance_for(
    request: UpdateRequest, status: Status, history: Sequence[Record], now: datetime
) -> Allowance | None:
    """What lets the release of this request be tried again; None if nothing does, or nothing has to.

    Args:
        request: with the annotation of the node that carries it.
        status: what is held against the release.
        history: the journal, oldest first; an annotation that was obeyed is spent with the try after it, so
            that a release that fails again is rejected again.
        now: the wall clock, aware.
    """
    undone = status.undone_of(request.sha256)
    is_held = status.has_rejected(request.sha256) or (undone is not None and is_over(undone))
    if not request.allow or not is_held or _is_spent(request, history):
        return None
    try:
        found = parse_allowance(request.allow, now)
    except ValueError:
        return None
    return found if found.sha256 == request.sha256 and now < found.until else None


def _is_spent(request: UpdateRequest, history: Sequence[Record]) -> bool:
    obeyed = False
    for record in history:
        if record.step == Step.ALLOW and record.detail.get("asked") == request.allow:
            obeyed = True
        elif obeyed and record.sha == request.sha256:
            return True
    return False

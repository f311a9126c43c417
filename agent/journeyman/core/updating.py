"""The condition `Updating`: what the updater says of its work, as the control plane is told it."""

from __future__ import annotations

from journeyman.core.gates.conditions import Told
from journeyman.model.meta import ConditionStatus
from journeyman_updater.contract.progress import CONDITION, UpdateProgress


def updating(progress: UpdateProgress | None) -> tuple[Told, ...]:
    """The condition, or nothing while the updater has nothing to say.

    Two progresses between which no step and no tenth of the transfer lies give equal conditions.
    """
    told = progress.condition() if progress is not None else None
    if told is None:
        return ()
    is_under_way, reason, message = told
    status = ConditionStatus.TRUE if is_under_way else ConditionStatus.FALSE
    return (Told(CONDITION, status, reason, message),)

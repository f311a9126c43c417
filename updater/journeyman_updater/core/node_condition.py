"""The patch by which the updater itself tells its FleetNode how an update goes.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from journeyman_updater.contract.progress import CONDITION


def condition_patch(
    node: Mapping[str, Any], told: tuple[bool, str, str], now: datetime
) -> dict[str, Any] | None:
    """A merge patch for the status of the node as it was read, or None if it says so already.

    A merge patch replaces the whole array, so the conditions of others go back as they were read, under the
    resourceVersion of that read.

    Args:
        node: the FleetNode.
        told: whether an update is under way, the reason, the message.
        now: the wall clock, aware; told only where the status changes.
    """
    is_under_way, reason, message = told
    status = "True" if is_under_way else "False"
    conditions = list((node.get("status") or {}).get("conditions") or ())
    old = next((item for item in conditions if item.get("type") == CONDITION), None)
    if old is not None and (old.get("status"), old.get("reason"), old.get("message")) == (
        status,
        reason,
        message,
    ):
        return None
    is_same_status = old is not None and old.get("status") == status
    since = old["lastTransitionTime"] if old is not None and is_same_status else _format(now)
    new = {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    others = [item for item in conditions if item.get("type") != CONDITION]
    return {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "status": {"conditions": [*others, new]},
    }


def _format(now: datetime) -> str:
    return f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

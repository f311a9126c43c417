"""Which event a change is for a watch with selectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from journeyman_plane.ports import Change

JsonObject = dict[str, Any]


def event_of(change: Change, selected: Callable[[JsonObject, Mapping[str, str]], bool]) -> str | None:
    """The event's type, or None for a change that the watch does not see.

    An object that comes to match is ADDED, one that no longer matches is DELETED.  Of the fields that can
    be selected by, only labels can change, so the labels from before the change are all it takes.

    Args:
        change: what was written.
        selected: whether an object with these labels is in the selection.
    """
    before = change.type != "ADDED" and selected(change.object, change.old_labels)
    after = change.type != "DELETED" and selected(
        change.object, change.object["metadata"].get("labels") or {}
    )
    if before and after:
        return "MODIFIED"
    if after:
        return "ADDED"
    return "DELETED" if before else None

"""Reads what the updater says of its work."""

from __future__ import annotations

from journeyman.core.gates.conditions import Told
from journeyman.core.updating import updating
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.progress import UpdateProgress


def told_of_update(root: StateRoot) -> tuple[Told, ...]:
    """The condition `Updating` of this moment; nothing if the file is not there or cannot be read."""
    try:
        progress = UpdateProgress.from_json(root.progress_file.read_bytes())
    except (OSError, ValueError):
        return ()
    return updating(progress)

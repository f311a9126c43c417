"""Which versions may be deleted."""

from __future__ import annotations

from collections.abc import Collection

from journeyman_updater.model.state import Status


def deletable(
    folders: Collection[str], status: Status, *, running: str | None, in_use: Collection[str] | None
) -> tuple[str, ...]:
    """The folders below `versions/` that nothing needs, sorted.

    Args:
        folders: all of them.
        status: of the state document; what it names is kept.
        running: the folder of the running agent, an empty string if none runs, None if that is not known.
        in_use: folders from which some process runs, None if that cannot be told.

    Returns:
        Nothing at all when anything is in doubt.
    """
    if running is None or in_use is None:
        return ()
    keep = {slot.folder for slot in status.slots()} | {running} | set(in_use)
    return tuple(sorted(set(folders) - keep))

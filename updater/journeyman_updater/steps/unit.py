"""The agent's unit goes with the release: what starts it is replaced at ACTIVATE, and put back by ROLLBACK.

`units/` keeps the unit of each release that may run.  The one of a release that comes is asked for before
anything stops; the one that is installed is kept before it is replaced, and so undone at any time.
"""

from __future__ import annotations

from pathlib import Path

from journeyman_updater.model.release import Slot
from journeyman_updater.model.unit import Unit
from journeyman_updater.steps.base import Tools, replace_durably
from journeyman_updater.steps.tree import read_manifest


def ask_for_unit(tools: Tools, slot: Slot) -> None:
    """Lets a staged release say how the agent is to be started, and keeps the answer.

    Files that are not installed here are none of its business, so what a later release has more of is left
    out.  A release that does not know the question runs under the unit that is there.

    Raises:
        UpdaterError: the release does not answer, or its unit is not sound on this host.
    """
    manifest, _ = read_manifest(tools.files, tools.tree(slot))
    here = _installed(tools)
    if not here or manifest.unit_protocol < 1:
        return
    answer = tools.unit.render(tools.tree(slot))
    unit = Unit({name: content for name, content in answer.files.items() if name in here})
    changed = {
        name: content
        for name, content in unit.files.items()
        if not tools.unit.is_same(tools.files.read(here[name]), content)
    }
    if changed:
        tools.unit.check(Unit(changed))
    # Its name becomes durable in `keep_unit`: before that nothing rests on it.
    _keep(tools, slot, unit)


def keep_unit(tools: Tools, active: Slot) -> None:
    """Keeps what is installed as the unit of the active release, which is what undoes `take_unit`."""
    here = _installed(tools)
    _keep(tools, active, Unit({name: tools.files.read(path) for name, path in here.items()}))
    tools.files.fsync_directory(tools.root.units)


def changes_of(tools: Tools, slot: Slot) -> list[str]:
    """The files that differ between what is installed and what that release wants."""
    kept = _kept(tools, slot)
    if kept is None:
        return []
    return [
        name
        for name, path in _installed(tools).items()
        if name in kept.files and not tools.unit.is_same(tools.files.read(path), kept.files[name])
    ]


def take_unit(tools: Tools, slot: Slot) -> None:
    """Installs the unit of a release durably; the service manager reads it at the restart that follows."""
    kept, changes, paths = _kept(tools, slot), changes_of(tools, slot), _installed(tools)
    if kept is None:
        return
    for name in changes:
        replace_durably(tools.files, paths[name], kept.files[name], mode=tools.unit.mode)
    if not changes:
        # A run that was killed may have renamed them and flushed nothing.
        for folder in {path.parent for path in paths.values()}:
            tools.files.fsync_directory(folder)


def have_other_units(tools: Tools, one: Slot, other: Slot) -> bool:
    """Whether two releases are started by different units, as far as that is known."""
    mine, theirs = _kept(tools, one), _kept(tools, other)
    if mine is None or theirs is None:
        return False
    return any(
        not tools.unit.is_same(content, theirs.files[name])
        for name, content in mine.files.items()
        if name in theirs.files
    )


def forget_units(tools: Tools, needed: set[str]) -> None:
    """Removes what is kept for releases that nothing names any more.

    Args:
        tools: the ports.
        needed: folders below `versions/`.
    """
    for name in tools.files.names(tools.root.units):
        if name.removesuffix(".json") not in needed:
            tools.forget(tools.root.units / name)


def _installed(tools: Tools) -> dict[str, Path]:
    return {name: path for name, path in tools.unit.paths().items() if tools.files.size(path) is not None}


def _keep(tools: Tools, slot: Slot, unit: Unit) -> None:
    # Everybody may read what the service manager reads.
    tools.ensure_folder(tools.root.units, mode=0o755)
    place = _place(tools, slot)
    temporary = place.with_name(f".{place.name}.tmp")
    tools.files.write(temporary, unit.to_json(), mode=0o644)
    tools.files.fsync(temporary)
    tools.files.rename(temporary, place)


def _kept(tools: Tools, slot: Slot) -> Unit | None:
    try:
        return Unit.from_json(tools.files.read(_place(tools, slot)))
    except (OSError, ValueError):
        return None


def _place(tools: Tools, slot: Slot) -> Path:
    return tools.root.units / f"{slot.folder}.json"

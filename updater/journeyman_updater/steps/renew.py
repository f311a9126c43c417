"""RENEW: updater, guard and parent become those of the active release, by renames of their launchers.

The new copy and its launchers are laid beside the ones in use, and its programs are run while nothing rests
on them: the guard starts the active release and asks who it is, the updater does a whole run without a
request.  Only then launchers name them.  The old copy stays until the updater has run from the new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from journeyman_updater.core.fit import PRODUCT
from journeyman_updater.core.launcher import copy_named_in, parent_in, render_launchers
from journeyman_updater.errors import UpdaterError
from journeyman_updater.model.journal import RENEWALS, Step
from journeyman_updater.model.release import Slot
from journeyman_updater.ports import Locks, SelfCheck
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.copy import copy_of, lay_copy
from journeyman_updater.steps.tree import read_manifest, remove_version


@dataclass(frozen=True)
class Myself:
    """The updater that runs now.

    Attributes:
        folder: the copy below `updater/` from which it runs; None if it runs from elsewhere.
        python: the interpreter that runs it, which new launchers record.
    """

    folder: str | None
    python: str


def renew(tools: Tools, me: Myself, check: SelfCheck, locks: Locks) -> None:
    """Brings updater, guard and parent up to the active release, if no trial is open and they differ.

    A copy that fails by itself is not tried again; one that could not be tried now is, at the next run.  The
    caller does not hold the lock, as the new updater needs it for its first run.

    Raises:
        UpdaterError: another updater is at work.
        OSError: from the file system; what is half laid is laid again by the next run.
    """
    lock = tools.root.update_lock
    with locks.hold(lock):
        slot = _due(tools, me)
        beside = _lay_beside(tools, me, slot) if slot else None
    if slot is None or beside is None:
        return
    try:
        check.guard(_next(tools.root.guard_launcher), tools.root.path, product=PRODUCT, version=slot.version)
        check.starts([me.python, "-I", "-S", parent_in(str(beside))])
        check.updater(_next(tools.root.updater_launcher), tools.root.path)
    except UpdaterError as error:
        with locks.hold(lock):
            _note_failure(tools, slot, error)
        return
    with locks.hold(lock):
        # Somebody may have begun an update meanwhile.
        if _due(tools, me) == slot:
            _switch(tools, slot)


def _due(tools: Tools, me: Myself) -> Slot | None:
    """The active release, if updater and guard are to become its own; if not, what is left over goes."""
    status = tools.records.load().status
    slot = status.active
    if status.trial is not None or slot is None or tools.files.size(tools.root.updater_launcher) is None:
        return None
    last = next((record for record in reversed(tools.records.history()) if record.step in RENEWALS), None)
    is_about_it = last is not None and last.sha == slot.sha256
    if _named(tools) != {copy_of(tools.root, slot).name}:
        is_refused = is_about_it and last is not None and bool(last.detail.get("rejects"))
        if not is_refused:
            return slot
    elif is_about_it and last is not None and last.step == Step.RENEW:
        # A killed run has renamed the launchers, and perhaps not flushed that.
        tools.files.fsync_directory(tools.root.path)
        tools.records.append(Step.RENEWED, slot)
    _sweep(tools, me, slot)
    return None


def _lay_beside(tools: Tools, me: Myself, slot: Slot) -> Path | None:
    tools.records.append_once(Step.RENEW, slot)
    try:
        copy = lay_copy(tools, slot)
    except UpdaterError as error:
        _note_failure(tools, slot, error)
        return None
    manifest, _ = read_manifest(tools.files, copy)
    texts = render_launchers(
        tools.root,
        str(copy),
        recorded_python=me.python,
        lowest=manifest.python_min,
        highest=manifest.python_max,
    )
    for name, text in texts.items():
        beside = _next(tools.root.path / name)
        tools.files.write(beside, text.encode(), mode=0o755)
        tools.files.fsync(beside)
    return copy


def _switch(tools: Tools, slot: Slot) -> None:
    """Each rename is a whole step by itself: any mixture of old and new launchers is sound."""
    for launcher in _launchers(tools):
        tools.files.rename(_next(launcher), launcher)
    tools.files.fsync_directory(tools.root.path)
    tools.records.append(Step.RENEWED, slot)


def _note_failure(tools: Tools, slot: Slot, error: UpdaterError) -> None:
    tools.records.append_once(
        Step.NOT_RENEWED, slot, reason=error.reason, evidence=error.message, rejects=error.rejects
    )


def _sweep(tools: Tools, me: Myself, slot: Slot) -> None:
    """Removes copies that no launcher names and that are not our own, and launchers that were never used."""
    if me.folder is None:
        return
    idle = sorted(set(tools.files.names(tools.root.updater)) - _named(tools) - {me.folder})
    if idle:
        tools.records.append(Step.RETIRE, slot, copies=idle)
    for name in idle:
        remove_version(tools.files, tools.root.updater / name)
    for launcher in _launchers(tools):
        tools.forget(_next(launcher))


def _named(tools: Tools) -> set[str | None]:
    """The copies that launchers name."""
    return {copy_named_in(tools.files.read(path).decode()) for path in _launchers(tools)}


def _launchers(tools: Tools) -> tuple[Path, ...]:
    root = tools.root
    return root.guard_launcher, root.parent_launcher, root.updater_launcher


def _next(launcher: Path) -> Path:
    return launcher.with_name(launcher.name + ".next")

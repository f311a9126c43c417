"""RETIRE: deletes what nothing needs: versions without a name or a user, and downloads that are done with."""

from __future__ import annotations

from journeyman_updater.core.retention import deletable
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.tree import remove_version
from journeyman_updater.steps.unit import forget_units


def retire(tools: Tools, *, keep: Slot | None = None) -> None:
    """Deletes old versions and downloads.  It costs nothing when there is nothing to delete.

    Args:
        tools: the ports.
        keep: a release that is asked for; what is here of it stays.
    """
    status = tools.records.load().status
    wanted = {keep.folder} if keep else set()
    candidates = set(tools.files.names(tools.root.versions)) - wanted
    if candidates - {slot.folder for slot in status.slots()}:
        in_use = tools.leases.in_use()
        found = deletable(candidates, status, running=_running_folder(tools), in_use=in_use)
        _remove(tools, found, status.active)
    forget_units(tools, wanted | {slot.folder for slot in status.slots()})
    for name in tools.files.names(tools.root.downloads):
        if keep is None or not name.startswith(keep.sha256):
            tools.files.unlink(tools.root.downloads / name)


def _remove(tools: Tools, folders: tuple[str, ...], about: Slot | None) -> None:
    if folders:
        tools.records.append(Step.RETIRE, about, folders=list(folders))
    for folder in folders:
        remove_version(tools.files, tools.root.versions / folder)


def _running_folder(tools: Tools) -> str | None:
    running, report = tools.running_report()
    if running is None:
        return ""
    if report is None:
        return None
    known = [slot for slot in tools.records.load().status.slots() if slot.sha256 == report.sha]
    # A running release that the state does not name is in doubt, and then nothing is deleted.
    return known[0].folder if known else None

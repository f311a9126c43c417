"""A copy of a release for updater, guard and parent, which no update of the agent touches."""

from __future__ import annotations

from pathlib import Path

from journeyman_updater.contract import StateRoot
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME, Validity
from journeyman_updater.model.release import Slot
from journeyman_updater.steps.base import Tools, replace_durably
from journeyman_updater.steps.tree import is_valid, read_manifest, remove_version, verify_tree


def copy_of(root: StateRoot, slot: Slot) -> Path:
    """Where the copy of a release lies."""
    return root.updater / slot.sha256[:12]


def lay_copy(tools: Tools, slot: Slot) -> Path:
    """Copies a staged release below `updater/`, durably; the validity record is the last act.

    Raises:
        ReleaseError: BadArchive; the release does not match its manifest.
        HostError: there is no room.
    """
    files, tree = tools.files, copy_of(tools.root, slot)
    if is_valid(files, tree, slot.sha256):
        # The run that laid it may have been killed before it flushed the name of the validity record.
        files.fsync_directory(tree)
        return tree
    manifest, manifest_sha256 = read_manifest(files, tools.tree(slot))
    tools.ensure_folder(tools.root.updater, mode=0o755)
    tools.check_room(tools.root.updater, sum(facts.size for facts in manifest.files.values()))
    if files.is_directory(tree):
        remove_version(files, tree)
    files.mkdir(tree)
    modes = {name: 0o755 if facts.executable else 0o644 for name, facts in manifest.files.items()}
    _copy(tools, tools.tree(slot), tree, {**modes, MANIFEST_NAME: 0o644})
    files.fsync_directory(tools.root.updater)
    verify_tree(files, tree, manifest)
    replace_durably(files, tree / VALIDITY_NAME, Validity(slot.sha256, manifest_sha256).to_json(), mode=0o644)
    return tree


def _copy(tools: Tools, source: Path, tree: Path, modes: dict[str, int]) -> None:
    files, folders = tools.files, [tree]
    for name, mode in modes.items():
        path = tree / name
        missing = [folder for folder in path.parents if tree in folder.parents and folder not in folders]
        for folder in reversed(missing):
            files.mkdir(folder)
            folders.append(folder)
        files.write(path, files.read(source / name), mode=mode)
    files.sync_tree(tree)

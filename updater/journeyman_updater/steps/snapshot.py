"""The first release of a host that was named none: what runs now, staged without an artifact."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from journeyman_updater.core.fit import PRODUCT
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME, Manifest, Validity
from journeyman_updater.model.release import Sha256, Slot
from journeyman_updater.steps.base import Tools, replace_durably
from journeyman_updater.steps.tree import has_folder, is_valid, remove_version, verify_tree

_SCRATCH = "snapshot"
"""No name of a version, so that neither the guard nor a tidying takes it for one."""
_ROOM_BYTES = 256 * 1024 * 1024


def stage_snapshot(tools: Tools, lay_out: Callable[[Path], Manifest]) -> Slot:
    """Makes a version of what runs now.  The digest of its manifest is its identity, as nothing was packed.

    Args:
        tools: the ports.
        lay_out: fills an empty folder with all but the manifest, which it returns.

    Raises:
        UpdaterError: what runs now cannot be copied, or the copy does not run.
    """
    files, versions = tools.files, tools.root.versions
    tools.ensure_folder(versions, mode=0o755)
    tools.check_room(versions, _ROOM_BYTES)
    scratch = versions / _SCRATCH
    if files.is_directory(scratch):
        remove_version(files, scratch)
    files.mkdir(scratch)
    manifest = lay_out(scratch)
    text = manifest.to_json()
    files.write(scratch / MANIFEST_NAME, text, mode=0o644)
    sha256 = Sha256(hashlib.sha256(text).hexdigest())
    slot = Slot(manifest.version, sha256, tools.new_nonce())
    tree = tools.tree(slot)
    if is_valid(files, tree, sha256):
        remove_version(files, scratch)
        return slot
    verify_tree(files, scratch, manifest)
    files.sync_tree(scratch)
    if has_folder(files, versions, slot):
        remove_version(files, tree)
    files.rename(scratch, tree)
    files.fsync_directory(versions)
    tools.exec_check.run(tree, product=PRODUCT, version=slot.version)
    replace_durably(files, tree / VALIDITY_NAME, Validity(sha256, sha256).to_json(), mode=0o644)
    return slot

"""STAGE: the artifact becomes a verified tree in its final place; the validity record is the last act."""

from __future__ import annotations

from pathlib import Path

from journeyman_updater.core.fit import PRODUCT, check_platform, check_product, check_python
from journeyman_updater.errors import Reason, ReleaseError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.manifest import VALIDITY_NAME, Manifest, Validity
from journeyman_updater.model.release import Slot
from journeyman_updater.steps.base import Tools, replace_durably
from journeyman_updater.steps.tree import has_folder, is_valid, read_manifest, remove_version, verify_written


def is_staged(tools: Tools, slot: Slot) -> bool:
    """Whether the release already lies here, whole, verified and durable."""
    tree = tools.tree(slot)
    if not is_valid(tools.files, tree, slot.sha256):
        return False
    # The run that staged it may have been killed before it flushed the name of the validity record.
    tools.files.fsync_directory(tree)
    return True


def stage(tools: Tools, slot: Slot, artifact: Path) -> None:
    """Unpacks, verifies, asks the release who it is, and records that it is valid.

    A folder without a validity record is no version; `retire`, and the next `stage`, remove it.

    Raises:
        UpdaterError: the release is unfit, or the host cannot take it.
    """
    tools.records.append(Step.STAGE, slot)
    # In a system install the service is another user than the updater, and has to reach its program.
    tools.ensure_folder(tools.root.versions, mode=0o755)
    tools.check_room(tools.root.versions, tools.files.size(artifact) or 0)
    tree = tools.tree(slot)
    if has_folder(tools.files, tools.root.versions, slot):
        remove_version(tools.files, tree)
    tools.files.mkdir(tree)
    written = tools.unpacker.unpack(artifact, tree, tools.limits.unpack)
    tools.files.fsync_directory(tools.root.versions)
    manifest, manifest_sha256 = read_manifest(tools.files, tree)
    verify_written(written, manifest)
    _check_fit(tools, manifest, slot)
    tools.exec_check.run(tree, product=PRODUCT, version=slot.version)
    validity = Validity(slot.sha256, manifest_sha256)
    replace_durably(tools.files, tree / VALIDITY_NAME, validity.to_json(), mode=0o644)


def _check_fit(tools: Tools, manifest: Manifest, slot: Slot) -> None:
    check_product(manifest.product)
    check_platform(manifest.os, manifest.arch, tools.host)
    check_python(manifest.python_min, manifest.python_max, tools.host)
    if not manifest.version.same_as(slot.version):
        raise ReleaseError(
            Reason.VERSION_MISMATCH,
            f"the archive holds {manifest.version.spelled}, and {slot.version.spelled} was asked for",
        )

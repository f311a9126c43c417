"""A version's folder: verifying it, and removing it so that a power cut never leaves a lie."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from journeyman_updater.errors import Reason, ReleaseError
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME, Manifest, Validity
from journeyman_updater.model.release import Sha256, Slot
from journeyman_updater.ports import FileSystem


def is_valid(files: FileSystem, tree: Path, sha256: Sha256) -> bool:
    """Whether the validity record stands, is about that artifact, and the whole tree still matches."""
    try:
        validity = Validity.from_json(files.read(tree / VALIDITY_NAME))
        text = files.read(tree / MANIFEST_NAME)
        if validity.sha256 != sha256 or hashlib.sha256(text).hexdigest() != validity.manifest_sha256:
            return False
        verify_tree(files, tree, Manifest.from_json(text))
    except (OSError, ValueError, ReleaseError):
        return False
    return True


def read_manifest(files: FileSystem, tree: Path) -> tuple[Manifest, Sha256]:
    """The manifest of an unpacked tree, and its digest.

    Raises:
        ReleaseError: BadArchive; there is none, or it cannot be read.
    """
    try:
        text = files.read(tree / MANIFEST_NAME)
        return Manifest.from_json(text), Sha256(hashlib.sha256(text).hexdigest())
    except (OSError, ValueError) as error:
        raise _damaged(f"{MANIFEST_NAME} cannot be used: {error}") from error


def verify_tree(files: FileSystem, tree: Path, manifest: Manifest) -> None:
    """Compares each file with the manifest.

    Raises:
        ReleaseError: BadArchive; a file is missing, differs, or is not listed.
    """
    found = set(_walk(files, tree, "")) - {MANIFEST_NAME, VALIDITY_NAME, f".{VALIDITY_NAME}.tmp"}
    _check_names(found, manifest)
    for name in found:
        _check_digest(name, Sha256(hashlib.sha256(files.read(tree / name)).hexdigest()), manifest)


def verify_written(written: Mapping[str, Sha256], manifest: Manifest) -> None:
    """Compares what was unpacked into an empty folder with the manifest, without reading it again.

    Raises:
        ReleaseError: BadArchive; a file is missing, differs, or is not listed.
    """
    found = set(written) - {MANIFEST_NAME}
    _check_names(found, manifest)
    for name in found:
        _check_digest(name, written[name], manifest)


def _check_names(found: set[str], manifest: Manifest) -> None:
    if found != set(manifest.files):
        odd = min(found ^ set(manifest.files))
        raise _damaged(f"{odd} is only in the tree or only in the manifest")


def _check_digest(name: str, digest: Sha256, manifest: Manifest) -> None:
    if digest != manifest.files[name].sha256:
        raise _damaged(f"{name} is not what the manifest says")


def remove_version(files: FileSystem, tree: Path) -> None:
    """Removes a version; the validity record goes first and durably, so that no half tree counts as whole."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(tree / VALIDITY_NAME)
    # Also when it is gone already: whoever removed it may have been killed before this line.
    files.fsync_directory(tree)
    _remove(files, tree)


def installed(files: FileSystem, versions: Path) -> list[Slot]:
    """All versions that have a validity record and match it."""
    found = []
    for folder in files.names(versions):
        tree = versions / folder
        try:
            validity = Validity.from_json(files.read(tree / VALIDITY_NAME))
            manifest, _ = read_manifest(files, tree)
        except (OSError, ValueError, ReleaseError):
            continue
        slot = Slot(manifest.version, validity.sha256, sequence=manifest.sequence)
        if slot.folder == folder and is_valid(files, tree, validity.sha256):
            found.append(slot)
    return found


def has_folder(files: FileSystem, versions: Path, slot: Slot) -> bool:
    """Whether the folder of a release is there, whole or not."""
    return slot.folder in files.names(versions)


def _walk(files: FileSystem, folder: Path, prefix: str) -> list[str]:
    found: list[str] = []
    for name in files.names(folder):
        if files.is_directory(folder / name):
            found.extend(_walk(files, folder / name, f"{prefix}{name}/"))
        else:
            found.append(prefix + name)
    return found


def _remove(files: FileSystem, folder: Path) -> None:
    for name in files.names(folder):
        path = folder / name
        if files.is_directory(path):
            _remove(files, path)
        else:
            files.unlink(path)
    files.rmdir(folder)


def _damaged(message: str) -> ReleaseError:
    return ReleaseError(Reason.BAD_ARCHIVE, message, "Build the release with scripts/release.")

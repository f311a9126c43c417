"""Packs a tree into the one tar.gz that its content determines: same files, same bytes."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

_ANY_EXECUTE_BIT = 0o111
_LEVEL = 9


def pack(tree: Path, archive: Path) -> None:
    """Writes the archive of a tree of regular files and folders.

    Members are sorted by path, without owners and times; modes are 0755 for folders and executables, 0644 for
    other files.  The header of gzip carries neither name nor time.

    Args:
        tree: the folder whose content becomes the top of the archive.
        archive: the file to write.

    Raises:
        ValueError: the tree holds a link or a special file, which no host would unpack.
    """
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=_LEVEL, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(tree.rglob("*"), key=lambda path: path.relative_to(tree).as_posix()):
            _add(tar, path, path.relative_to(tree).as_posix())


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise ValueError(f"{name} is neither a regular file nor a folder")
    if path.is_dir():
        member.type, member.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(member)
        return
    status = path.stat()
    member.size = status.st_size
    member.mode = 0o755 if status.st_mode & _ANY_EXECUTE_BIT else 0o644
    with path.open("rb") as file:
        tar.addfile(member, file)

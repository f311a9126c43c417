"""Unpacks a release's tar.gz into a tree, and trusts nothing that it says of itself.

What a member may be is decided in core/archive_rules.py; this file reads the archive once, front to back, and
writes through the FileSystem port.  Comparing the tree with its manifest is left to the staging step.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from journeyman_updater.core.archive_rules import ArchiveRules, Member, MemberKind, most_bytes
from journeyman_updater.core.artifact_format import HEAD_BYTES, require_gzip, require_tar
from journeyman_updater.errors import HostError, Reason, ReleaseError
from journeyman_updater.model.release import Sha256
from journeyman_updater.ports import FileSystem, UnpackLimits

_CHUNK_BYTES = 1024**2
_ANY_EXECUTE_BIT = 0o111


class TarUnpacker:
    """Implements the port Unpacker.

    Args:
        files: where the tree is written.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def unpack(self, archive: Path, destination: Path, limits: UnpackLimits) -> dict[str, Sha256]:
        """Unpacks `archive` into `destination`; see the port.

        Raises:
            ReleaseError: the archive is damaged, unsafe or too big.  The caller deletes what was written.
            HostError: `destination` is not empty.
            OSError: from the file system.
        """
        if not self._files.is_directory(destination) or self._files.names(destination):
            raise HostError(Reason.NOT_WRITABLE, f"{destination} is not an empty folder")
        folders = {destination}
        written: dict[str, Sha256] = {}
        with _opened(archive, limits) as tar:
            rules = ArchiveRules(limits)
            for member in tar:
                parts = rules.admit(_describe(member))
                target = destination.joinpath(*parts)
                is_folder = member.isdir()
                self._make_folders(target if is_folder else target.parent, folders)
                if not is_folder:
                    written["/".join(parts)] = self._write(tar, member, target)
        self._files.sync_tree(destination)
        return written

    def _make_folders(self, path: Path, known: set[Path]) -> None:
        missing = []
        while path not in known:
            missing.append(path)
            path = path.parent
        for folder in reversed(missing):
            self._files.mkdir(folder, mode=0o755)
            known.add(folder)

    def _write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> Sha256:
        source = tar.extractfile(member)
        if source is None:
            raise _damaged("a file without content")
        mode = 0o755 if member.mode & _ANY_EXECUTE_BIT else 0o644
        chunk = source.read(_CHUNK_BYTES)
        digest = hashlib.sha256(chunk)
        self._files.write(target, chunk, mode=mode)
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            self._files.append(target, chunk)
        return Sha256(digest.hexdigest())


class _CappedReader(io.RawIOBase):
    """Counts what the decompressor gives, so that a bomb ends at the cap and not at the disk's end."""

    def __init__(self, source: gzip.GzipFile, cap_bytes: int) -> None:
        super().__init__()
        self._source = source
        self._cap_bytes = cap_bytes
        self._position = 0

    def read(self, size: int = -1, /) -> bytes:
        # tarfile reads extended headers in one piece, whatever size they claim.
        if size < 0 or size > _CHUNK_BYTES:
            raise _bomb(f"asks for {size} bytes of headers at once")
        data = self._source.read(size)
        self._position += len(data)
        self._check()
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        if offset > self._cap_bytes:
            raise _bomb(f"unpacks to more than {self._cap_bytes} bytes")
        # tarfile seeks before each read, nearly always to where it is.
        if whence != io.SEEK_SET or offset != self._position:
            self._position = self._source.seek(offset, whence)
            self._check()
        return self._position

    def tell(self) -> int:
        return self._position

    def _check(self) -> None:
        if self._position > self._cap_bytes:
            raise _bomb(f"unpacks to more than {self._cap_bytes} bytes")


@contextmanager
def _opened(archive: Path, limits: UnpackLimits) -> Iterator[tarfile.TarFile]:
    """Opens the archive after a look at its first bytes, and names what is wrong while it is read."""
    with archive.open("rb") as raw:
        require_gzip(raw.read(HEAD_BYTES))
        raw.seek(0)
        try:
            with gzip.GzipFile(fileobj=raw, mode="rb") as unzipped:
                require_tar(unzipped.read(HEAD_BYTES))
                unzipped.seek(0)
                capped = _CappedReader(unzipped, most_bytes(archive.stat().st_size, limits))
                with tarfile.open(fileobj=cast(BinaryIO, capped), mode="r:") as tar:
                    yield tar
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError) as error:
            raise _damaged(str(error)) from error


def _describe(member: tarfile.TarInfo) -> Member:
    if member.issparse():
        # A sparse file claims more bytes than it brings, past every cap.
        kind = MemberKind.SPECIAL
    elif member.isreg():
        kind = MemberKind.FILE
    elif member.isdir():
        kind = MemberKind.FOLDER
    elif member.issym():
        kind = MemberKind.SYMLINK
    elif member.islnk():
        kind = MemberKind.HARDLINK
    else:
        kind = MemberKind.SPECIAL
    return Member(member.name, kind, member.size, member.mode, member.linkname)


def _bomb(what: str) -> ReleaseError:
    return ReleaseError(Reason.DECOMPRESSION_BOMB, f"the archive {what}", "Nothing of it was kept.")


def _damaged(what: str) -> ReleaseError:
    return ReleaseError(Reason.BAD_ARCHIVE, f"the archive is damaged: {what}", "Build the release again.")

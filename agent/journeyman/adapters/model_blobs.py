"""Weights by their content: whole ones in `blobs/`, growing ones in `parts/`, and the locks on both.

    blobs/<sha256>           whole and compared
    parts/<key>              what came so far of one file; goes on where it is, whoever continues it
    parts/<key>.json         the validator by which its server may complete it
    sets/<digest>/<names>    a model of several files: links to its blobs, under the names that runtimes want

The lock is the kernel's, on the file itself, so it ends with its holder and nothing lies about.  Whoever
makes a file grow holds it, through its move into `blobs/`, until a name refers to it.  So what is locked is
in use, and what is neither locked nor referred to is waste.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from journeyman.core.gates.marks import DiskMarks
from journeyman.core.gates.signals import disk_reserve_bytes
from journeyman.core.quantities import bytes_text
from journeyman.errors import HostError
from journeyman_updater.contract.durable import sync_directory

CHUNK_BYTES = 1 << 20
FACTS_SUFFIX = ".json"


class SomebodyElseWasFasterError(Exception):
    """While we waited for the lock, its holder completed or deleted the file: look again what is here."""


class BlobShelf:
    """Blobs below one folder.

    Args:
        folder: the store; made when the first file comes.
        marks: what the disk gate keeps free.
    """

    def __init__(self, folder: Path, marks: DiskMarks) -> None:
        self._folder = folder
        self._marks = marks
        self.blobs = folder / "blobs"
        self.parts = folder / "parts"
        self.sets = folder / "sets"

    @contextmanager
    def held(self, sha256: str) -> Iterator[Path | None]:
        """A whole blob, kept from the collector while the block lasts; None where there is none."""
        path = self.blobs / sha256
        try:
            file = path.open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield path if _is_at(file, path) else None

    @contextmanager
    def growing(
        self, key: str, *, waiting: Callable[[], None], is_here: Callable[[], bool]
    ) -> Iterator[IO[bytes]]:
        """A part that is ours alone while the block lasts, open for reading and appending.

        Args:
            key: its SHA-256 where that is known beforehand.
            waiting: called before we wait for somebody else who makes it grow.
            is_here: whether all of it is here; asked once nobody else can make it grow any more.

        Raises:
            SomebodyElseWasFasterError: it was completed meanwhile.
        """
        for folder in (self.blobs, self.parts):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Without a buffer: what a full disk has refused would be written, and fail, once more at the close.
        with (self.parts / key).open("a+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                # Its holder may share a blob that is whole while it still fetches others of its model.
                fcntl.flock(file, fcntl.LOCK_SH)
                if _is_at(file, self.parts / key):
                    fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file, self.parts / key):
                raise SomebodyElseWasFasterError
            if is_here():
                # It was completed after we had looked for it, so what we opened is a new part of nothing.
                self.drop(file, key)
                raise SomebodyElseWasFasterError
            yield file

    def facts_of(self, key: str) -> Path:
        """Where the validator of a part is kept."""
        return self.parts / f"{key}{FACTS_SUFFIX}"

    def keep(self, file: IO[bytes], key: str, sha256: str, *, shared: bool = False) -> Path:
        """Makes a part a blob, durably; its lock goes with it.

        Args:
            file: the part, with our lock.
            key: what it was called.
            sha256: what it has.
            shared: whether who waits for it may go on already: who knows its digest finds it without a name.

        Raises:
            SomebodyElseWasFasterError: a collector took it in the moment in which the lock was changed.
        """
        file.flush()
        os.fsync(file.fileno())
        blob = self.blobs / sha256
        os.replace(self.parts / key, blob)
        sync_directory(self.blobs)
        self.facts_of(key).unlink(missing_ok=True)
        if shared:
            fcntl.flock(file, fcntl.LOCK_SH)
            if not _is_at(file, blob):
                raise SomebodyElseWasFasterError
        return blob

    def missing_bytes(self, key: str, sha256: str, size_bytes: int) -> int:
        """How many bytes of a file are still to come."""
        if sha256 and (self.blobs / sha256).exists():
            return 0
        part = self.parts / key
        return max(0, size_bytes - (part.stat().st_size if part.exists() else 0))

    def of_git(self, git_sha1: str, size_bytes: int | None) -> str:
        """The SHA-256 of a blob that git calls so, or an empty string.  Only blobs of that size are read."""
        for blob in self.blobs.glob("*"):
            # A collector may take what is found here.
            with suppress(FileNotFoundError):
                if blob.stat().st_size == size_bytes and git_blob_sha1(blob) == git_sha1:
                    return blob.name
        return ""

    def drop(self, file: IO[bytes], key: str) -> None:
        """Deletes a part of ours."""
        file.truncate(0)
        (self.parts / key).unlink(missing_ok=True)
        self.facts_of(key).unlink(missing_ok=True)

    def assemble(
        self, file_names: Sequence[str], digests: Sequence[str], digest: str, held: ExitStack
    ) -> Path:
        """Lays the blobs of one model under their names into a folder for its digest, and returns that.

        Args:
            file_names: the names, in the order of the digests.
            digests: of the blobs.
            digest: of the model.
            held: keeps the folder from the collector until a name refers to it.
        """
        folder = self.sets / digest
        while not self._hold_set(folder, held):
            continue  # A collector has just deleted it.
        for name, sha256 in zip(file_names, digests, strict=True):
            link = folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..") / ".." / "blobs" / sha256)
        sync_directory(folder)
        return folder

    def _hold_set(self, folder: Path, held: ExitStack) -> bool:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        held.callback(os.close, opened)
        fcntl.flock(opened, fcntl.LOCK_SH)
        return _is_at(opened, folder)

    def remove_set(self, folder: Path, is_waste: Callable[[], bool]) -> bool:
        """Deletes the folder of a model that nobody holds; returns whether it is gone.

        Args:
            folder: one of `sets`.
            is_waste: asked once it is locked, so that nobody can begin to refer to it any more.
        """
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_waste():
                return False
            for link in folder.iterdir():
                link.unlink()
            folder.rmdir()
        except BlockingIOError:
            return False
        finally:
            os.close(opened)
        return True

    def room_for(self, more_bytes: int) -> None:
        """Raises HostError, with the numbers, if so many more bytes leave less than the disk gate keeps."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        usage = shutil.disk_usage(self._folder)
        reserve = disk_reserve_bytes(self._marks, usage.total)
        if usage.free - more_bytes < reserve:
            raise HostError(
                f"no room for the model: {bytes_text(more_bytes)} to come, {bytes_text(usage.free)} free, "
                f"{bytes_text(reserve)} of that kept free",
                "Free some space (`journeyman models gc` frees what nothing uses), or lower gates.disk.",
            )

    def collect(self, path: Path, is_waste: Callable[[], bool], *, dry_run: bool) -> int | None:
        """Deletes a blob or a part that nobody holds.

        Args:
            path: the file.
            is_waste: asked once the file is locked, so that nobody can begin to refer to it any more.
            dry_run: only say what would be freed.

        Returns:
            The bytes that were freed; None if it is held or no waste.
        """
        try:
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not is_waste():
                    return None
                freed = os.fstat(file.fileno()).st_blocks * 512
                if not dry_run:
                    path.unlink()
                return freed
        except (BlockingIOError, FileNotFoundError):
            return None


def copy_into(source: IO[bytes], target: IO[bytes] | None, tell: Callable[[int], None] | None = None) -> str:
    """Copies a stream, or only reads it; returns its SHA-256.

    Args:
        source: from its position on.
        target: where it goes; None for nowhere.
        tell: is told after each megabyte how many bytes it were so far.
    """
    digest, done = hashlib.sha256(), 0
    while chunk := source.read(CHUNK_BYTES):
        digest.update(chunk)
        if target is not None:
            write_all(target, chunk)
        done += len(chunk)
        if tell is not None:
            tell(done)
    return digest.hexdigest()


def write_all(file: IO[bytes], data: bytes) -> None:
    """Writes to a file without a buffer, which may take only a part at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def digest_of_parts(digests: Sequence[str]) -> str:
    """One digest for a model of several files: of their digests in hex, one a line; of one file its own."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(f"{one}\n" for one in digests).encode()).hexdigest()


def digest_of_folder(digests: Mapping[str, str]) -> str:
    """One digest for a model that is a folder: of a line with digest and name for each file, by name."""
    return hashlib.sha256(
        "".join(f"{digests[name]} {name}\n" for name in sorted(digests)).encode()
    ).hexdigest()


def git_blob_sha1(path: Path) -> str:
    """What git calls the content of a file: https://git-scm.com/book/en/v2/Git-Internals-Git-Objects."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turns an OSError into a HostError that says what it stopped."""
    try:
        yield
    except OSError as error:
        advice = "Free some space, or mend the permissions."
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            advice = "Free some space; the same command goes on where it stopped."
        raise HostError(f"{what}: {error.strerror}", advice) from error


def _is_at(file: IO[bytes] | int, path: Path) -> bool:
    """Whether an open file still is what lies there."""
    try:
        return os.path.samestat(os.fstat(file if isinstance(file, int) else file.fileno()), path.stat())
    except FileNotFoundError:
        return False

"""The FileSystem port on the host's own file system."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import re
import stat
import sys
from pathlib import Path

_NEVER_A_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
# linux/magic.h: ext2 to ext4, XFS, Btrfs, F2FS, overlayfs.  syncfs(2) flushes data, names and the drive's
# cache there; what FUSE and network file systems do with it is up to somebody else.
_WHOLLY_FLUSHED = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x794C7630})
# Since this Linux syncfs(2) fails if a write was lost; before, it returned success.
_HONEST_SINCE = (5, 8)
_STATFS_BYTES = 256


class RealFileSystem:
    """Implements the port FileSystem, one system call after the other."""

    def read(self, path: Path, *, limit_bytes: int | None = None) -> bytes:
        # Non-blocking, as whoever waits for the writer of a fifo may wait for ever.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | _NEVER_A_LINK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "is no regular file", str(path))
            if limit_bytes is None:
                return file.read()
            data = file.read(limit_bytes + 1)
            if len(data) > limit_bytes:
                raise OSError(errno.EFBIG, f"is larger than {limit_bytes} bytes", str(path))
            return data

    def write(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        # Always a new file: one that is there may have another name elsewhere, or be run by somebody.
        path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NEVER_A_LINK
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            # Explicit, as the umask of whoever starts the updater must not decide.
            os.fchmod(file.fileno(), mode)
            file.write(data)

    def append(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NEVER_A_LINK
        with os.fdopen(os.open(path, flags, 0o600), "ab") as file:
            if not os.fstat(file.fileno()).st_size:
                os.fchmod(file.fileno(), mode)
            file.write(data)

    def fsync(self, path: Path) -> None:
        _flush(path, os.O_RDONLY | _NEVER_A_LINK)

    def fsync_directory(self, path: Path) -> None:
        _flush(path, os.O_RDONLY | os.O_DIRECTORY | _NEVER_A_LINK)

    def sync_tree(self, path: Path) -> None:
        if _reports_what_syncfs_lost() and _type_of(path) in _WHOLLY_FLUSHED:
            # One commit of the file system's journal, in place of one for each of some thousand files.
            _syncfs(path)
            return
        for folder, _, names in os.walk(path, topdown=False, onerror=_raise):
            for name in names:
                self.fsync(Path(folder, name))
            self.fsync_directory(Path(folder))

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path, *, mode: int = 0o755) -> None:
        path.mkdir()
        path.chmod(mode)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(child.name for child in path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def is_directory(self, path: Path) -> bool:
        return _has_type(path, stat.S_IFDIR)

    def size(self, path: Path) -> int | None:
        return path.lstat().st_size if _has_type(path, stat.S_IFREG) else None


def _has_type(path: Path, kind: int) -> bool:
    try:
        return stat.S_IFMT(path.lstat().st_mode) == kind
    except (FileNotFoundError, NotADirectoryError):
        return False


def _raise(error: OSError) -> None:
    raise error


@functools.cache
def _reports_what_syncfs_lost() -> bool:
    if sys.platform != "linux":
        return False
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= _HONEST_SINCE


def _type_of(path: Path) -> int | None:
    """The magic number of the file system, which is the first field of statfs(2)."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), answer) != 0:
        return None
    return int(ctypes.c_long.from_buffer(answer).value) & 0xFFFFFFFF


def _syncfs(path: Path) -> None:
    # Not sync(2), which waits for every mount of the host, and so for ever for a dead one.
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NEVER_A_LINK)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(descriptor)


def _flush(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        if sys.platform == "darwin":
            # fsync(2) of macOS leaves the data in the drive's cache; F_FULLFSYNC does not.
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

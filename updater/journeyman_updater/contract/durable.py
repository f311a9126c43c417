"""The one way in which a durable file is written: temp, fsync, rename, fsync of the directory."""

from __future__ import annotations

import contextlib
import os

# A variable of this name is true to type checkers; each shim loads this file, and needs no pathlib.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path


def write_durably(
    path: Path | str, data: bytes, *, mode: int = 0o600, owner: tuple[int, int] | None = None
) -> None:
    """Replaces `path` with `data` so that a power cut leaves the old or the new content, never a part.

    Args:
        path: the file; its directory must exist.
        data: the whole new content.
        mode: the permission bits of the new file, set before it becomes visible.
        owner: uid and gid of the new file; those of the caller where it is None.

    Raises:
        OSError: nothing was changed, and no temporary file is left.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, temporary_name(name))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(temporary, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(folder or os.curdir)


def temporary_name(name: str) -> str:
    """What a file is called while it is written; what a killed writer leaves is found by it, see `sweep`.

    Nobody can guess it: the folder may be another user's, who must not choose where root writes.
    """
    return f".{name}.{os.getpid()}-{os.urandom(8).hex()}.tmp"


def sync_directory(path: Path | str) -> None:
    """Makes renames and unlinks in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The artifact store on files: `<folder>/<version>/<name>`, each whole and durable or not there at all.

One plane owns the folder (it holds the lock of the data folder), so nobody else writes here.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from journeyman.errors import ConflictError, NotFoundError
from journeyman_plane.core.artifact_names import check_names, is_replaceable
from journeyman_plane.errors import RequestError
from journeyman_plane.ports import Artifact
from journeyman_updater.contract.durable import sync_directory

_UPLOAD = ".upload-"


class FileArtifacts:
    """Implements the port Artifacts.

    Args:
        folder: made with the first artifact.
        largest_bytes: of one file.
    """

    def __init__(self, folder: Path, largest_bytes: int) -> None:
        self._folder = folder
        self._largest_bytes = largest_bytes
        # Hashed once for each file that is asked for: (size, time of the change) -> digest.
        self._known: dict[Path, tuple[tuple[int, int], str]] = {}
        self._lock = threading.Lock()
        # What was being uploaded when an earlier plane was killed.
        for left_over in folder.glob(f"*/{_UPLOAD}*"):
            left_over.unlink()

    def find(self, version: str, name: str) -> Artifact:
        check_names(version, name)
        path = self._folder / version / name
        try:
            found = path.stat()
        except FileNotFoundError as error:
            raise NotFoundError(
                f"artifacts {version}/{name} not found", status=404, reason="NotFound"
            ) from error
        stamp = (found.st_size, found.st_mtime_ns)
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            with path.open("rb") as file:
                known = self._known[path] = (stamp, hashlib.file_digest(file, "sha256").hexdigest())
        return Artifact(path, found.st_size, known[1])

    @contextmanager
    def receive(self, version: str, name: str) -> Iterator[Upload]:
        check_names(version, name)
        folder = self._folder / version
        temporary = folder / f"{_UPLOAD}{os.urandom(8).hex()}"
        try:
            if not folder.is_dir():
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_directory(folder.parent)
                sync_directory(folder.parent.parent)
            with temporary.open("xb") as file:
                yield Upload(self, file, folder / name, self._largest_bytes)
        except OSError as error:
            raise RequestError(
                f"artifacts {version}/{name} cannot be stored: {error.strerror}",
                "Free space where the plane keeps its data.",
                status=507,
                reason="InsufficientStorage",
            ) from error
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()

    def keep(self, temporary: Path, path: Path, sha256: str) -> bool:
        """Gives a whole, flushed upload its name; one at a time, so that two cannot both be the first."""
        with self._lock:
            is_new = not path.exists()
            if not is_new and self.find(path.parent.name, path.name).sha256 == sha256:
                return False
            if not is_new and not is_replaceable(path.name):
                raise ConflictError(
                    f"artifacts {path.parent.name}/{path.name} already exists with other content",
                    "Publish other bytes under another version.",
                    status=409,
                    reason="AlreadyExists",
                )
            os.replace(temporary, path)
            sync_directory(path.parent)
            return is_new


class Upload:
    """Implements the port Upload."""

    def __init__(self, store: FileArtifacts, file: BinaryIO, path: Path, largest_bytes: int) -> None:
        self._store = store
        self._file = file
        self._path = path
        self._largest_bytes = largest_bytes
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._largest_bytes:
            raise RequestError(
                f"Request entity too large: limit is {self._largest_bytes}",
                status=413,
                reason="RequestEntityTooLarge",
            )
        self._digest.update(data)
        self._file.write(data)

    def keep(self) -> tuple[Artifact, bool]:
        self._file.flush()
        os.fsync(self._file.fileno())
        sha256 = self._digest.hexdigest()
        is_new = self._store.keep(Path(self._file.name), self._path, sha256)
        return Artifact(self._path, self._size, sha256), is_new

"""Artifacts that lie on this host: `file:` URLs, for hosts without a network and for releases under test."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import unquote, urlsplit

from journeyman_updater.errors import Reason, RequestError, UntrustedError
from journeyman_updater.model.release import Sha256
from journeyman_updater.ports import Fetcher, FileSystem, Progress

_CHUNK_BYTES = 1024**2


class FileFetcher:
    """Implements the port Fetcher for `file:` URLs, and hands all others on.

    Args:
        files: where the artifact is written.
        others: for all other URLs.
    """

    def __init__(self, files: FileSystem, others: Fetcher) -> None:
        self._files = files
        self._others = others

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        expected_size: int | None,
        sha256: Sha256,
        progress: Progress,
    ) -> None:
        """Copies the artifact to `destination`; see the port.

        Raises:
            RequestError: BadRequest; the file cannot be read.
            UntrustedError: HashMismatch, TooLarge; nothing is kept.
            UpdaterError: from the other fetcher.
        """
        source = _path_of(url)
        if source is None:
            self._others.fetch(
                url, destination, expected_size=expected_size, sha256=sha256, progress=progress
            )
            return
        part = destination.with_name(destination.name + ".part")
        if self._copy(source, part, progress) != sha256:
            self._files.unlink(part)
            raise UntrustedError(
                Reason.HASH_MISMATCH, f"{source} is not the artifact {sha256[:12]}... that was asked for"
            )
        self._files.fsync(part)
        self._files.rename(part, destination)
        self._files.fsync_directory(destination.parent)

    def fetch_bytes(self, url: str, *, limit_bytes: int) -> bytes:
        """Reads a small file; see the port.

        Raises:
            RequestError: BadRequest; the file cannot be read.
            UntrustedError: TooLarge.
            UpdaterError: from the other fetcher.
        """
        source = _path_of(url)
        if source is None:
            return self._others.fetch_bytes(url, limit_bytes=limit_bytes)
        try:
            with source.open("rb") as file:
                data = file.read(limit_bytes + 1)
        except OSError as error:
            raise _unreadable(source, error) from error
        if len(data) > limit_bytes:
            raise UntrustedError(Reason.TOO_LARGE, f"{source} has more than {limit_bytes} bytes")
        return data

    def _copy(self, source: Path, part: Path, progress: Progress) -> str:
        digest, here = hashlib.sha256(), 0
        try:
            with source.open("rb") as file:
                total = source.stat().st_size
                self._files.write(part, b"")
                while chunk := file.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    here += len(chunk)
                    self._files.append(part, chunk)
                    progress(here, total)
        except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
            raise _unreadable(source, error) from error
        return digest.hexdigest()


def _path_of(url: str) -> Path | None:
    """The path of a `file:` URL (RFC 8089), or None for another URL."""
    if not url.lower().startswith("file:"):
        return None
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise RequestError(Reason.BAD_REQUEST, f"{url[:200]!r} is no URL: {error}") from error
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise RequestError(
            Reason.BAD_REQUEST, f"{url[:200]!r} is no file of this host", "Write file:///path."
        )
    return Path(unquote(parts.path))


def _unreadable(source: Path, error: OSError) -> RequestError:
    return RequestError(Reason.BAD_REQUEST, f"{source} cannot be read: {error.strerror}")

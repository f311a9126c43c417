"""Brings artifacts to this host: resumed where they can be, and whole and verified when it returns.

The SHA-256 of the whole file has the last word.  So a part that was torn by a power cut, or that was
completed from another file, costs a second transfer and nothing else.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from journeyman_updater.adapters.download_files import Part, WrongBytes
from journeyman_updater.adapters.http_source import HttpSource, SourceSettings
from journeyman_updater.contract.http_rules import ContentRange, Tries
from journeyman_updater.core.artifact_format import looks_like_html
from journeyman_updater.errors import Reason, SourceError, UntrustedError
from journeyman_updater.model.release import Sha256
from journeyman_updater.ports import Clock, FileSystem, Progress

_CHUNK_BYTES = 1024**2
# A second transfer clears the suspicion that the first was damaged on its way or completed from a torn part.
_TRANSFERS = 3


class HttpFetcher:
    """Implements the port Fetcher.

    Args:
        settings: limits, trust and retries.
        files: where parts and artifacts are written.
        clock: for pauses, which end early when the updater is asked to stop.
        fraction: random from 0 to 1, for jitter.
    """

    def __init__(
        self,
        settings: SourceSettings,
        files: FileSystem,
        clock: Clock,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._files = files
        self._clock = clock
        self._fraction = fraction
        self._source = HttpSource(settings, clock)

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        expected_size: int | None,
        sha256: Sha256,
        progress: Progress,
    ) -> None:
        """Brings the artifact to `destination`; see the port.

        Raises:
            SourceError: the way or the server; what came is kept, and the next call goes on from there.
                HashMismatch: the server gave wrong bytes more than once, which is remembered; they are not
                fetched again before the server says that they have changed, or the URL does.
            UntrustedError: TooLarge, LengthMismatch, SchemeDowngrade, Compressed; nothing is kept.
            RequestError: the URL is none.
            HostError: ClockWrong.
            OSError: from the file system, ENOSPC above all.
        """
        size = self._files.size(destination)
        if size is not None:
            if _sha256_of(destination) == sha256:
                # The run that fetched it may have been killed before it flushed the name.
                self._files.fsync_directory(destination.parent)
                progress(size, size)
                return
            self._files.unlink(destination)
        part, wrong = Part(self._files, destination), WrongBytes(self._files, destination)
        cap_bytes = self._settings.most_bytes if expected_size is None else expected_size
        transfer = _Transfer(self._source, url, part, expected_size, cap_bytes, progress)
        found: list[str] = []
        for _ in range(_TRANSFERS):
            self._retry(partial(transfer.run, sha256, wrong.recall(url)), part.size)
            wrong.forget()
            digest = _sha256_of(part.path)
            if digest == sha256:
                part.keep()
                return
            unchanged = part.unchanged()
            part.drop()
            if digest in found:
                break
            found.append(digest)
        wrong.note(url, digest, unchanged)
        raise _wrong_bytes(url, sha256, digest)

    def fetch_bytes(self, url: str, *, limit_bytes: int) -> bytes:
        """Brings a small file into memory, by the same rules.

        Raises:
            SourceError, UntrustedError, RequestError, HostError: as `fetch`.
        """
        taken = bytearray()

        def transfer() -> None:
            taken.clear()
            with self._source.get(url, {}) as response:
                for chunk in _chunks(response, url):
                    taken.extend(chunk)
                    if len(taken) > limit_bytes:
                        raise _too_large(url, limit_bytes)

        self._retry(transfer, lambda: 0)
        return bytes(taken)

    def _retry(self, transfer: Callable[[], None], here: Callable[[], int]) -> None:
        """Repeats a transfer until it is done, or until too many tries in a row bring nothing new."""
        tries = Tries(self._settings.retry, here())
        while True:
            try:
                return transfer()
            except SourceError as error:
                pause = tries.pause_after(here(), self._fraction(), error.retry_after_seconds)
                if pause is None or not error.at_once:
                    raise
                self._clock.wait(pause)


@dataclass(frozen=True)
class _Transfer:
    """One request for what is missing of one file."""

    source: HttpSource
    url: str
    part: Part
    expected_size: int | None
    cap_bytes: int
    progress: Progress

    def run(self, sha256: str, known: tuple[str, dict[str, str]] | None) -> None:
        """Takes what is missing.

        Args:
            sha256: what is wanted, for the message.
            known: wrong bytes that this URL has given before, and how to ask for a change.
        """
        if known is not None and not known[1]:
            raise _wrong_bytes(self.url, sha256, known[0])
        offset, validator = self.part.size(), self.part.validator()
        if offset and (not validator or offset > self.cap_bytes):
            self.part.drop()
            offset = 0
        if offset == self.expected_size:
            return
        headers: Mapping[str, str] = known[1] if known is not None else {}
        if offset:
            headers = {"Range": f"bytes={offset}-", "If-Range": validator}
        try:
            with self.source.get(self.url, headers) as response:
                if response.status_code == HTTPStatus.NOT_MODIFIED and known is not None:
                    raise _wrong_bytes(self.url, sha256, known[0])
                self._append(response, self._begin(response, offset))
        except UntrustedError:
            self.part.drop()
            raise

    def _begin(self, response: httpx.Response, offset: int) -> int | None:
        """Judges the head of the response, and lets the part begin anew unless it is truly continued.

        Returns:
            The size of the whole file, or None if the server does not say.
        """
        if response.status_code == HTTPStatus.OK:
            self.part.begin(response.headers)
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
        else:
            total = self._continued(response, offset)
        if total is not None:
            self._check_total(total, response)
        return total

    def _continued(self, response: httpx.Response, offset: int) -> int | None:
        found = ContentRange.parse(response.headers.get("Content-Range", ""))
        if response.status_code != HTTPStatus.PARTIAL_CONTENT or found is None or found.first != offset:
            # The part does not fit what lies there now, so the next try takes the whole.
            self.part.drop()
            raise SourceError(
                Reason.LENGTH_MISMATCH, f"{_host(self.url)} does not give the range that was asked for"
            )
        return found.total

    def _check_total(self, total: int, response: httpx.Response) -> None:
        if total == self.expected_size or (self.expected_size is None and total <= self.cap_bytes):
            return
        # A login page in place of the artifact has another length, too, and deserves its own name.
        next(_chunks(response, self.url), b"")
        if self.expected_size is None:
            raise _too_large(self.url, self.cap_bytes)
        raise UntrustedError(
            Reason.LENGTH_MISMATCH,
            f"{_host(self.url)} offers {total} bytes, the signature promises {self.expected_size}",
            "Publish the artifact that was signed.",
        )

    def _append(self, response: httpx.Response, total: int | None) -> None:
        here = self.part.size()
        for chunk in _chunks(response, self.url):
            here += len(chunk)
            if here > self.cap_bytes:
                raise _too_large(self.url, self.cap_bytes)
            self.part.append(chunk)
            self.progress(here, self.expected_size if total is None else total)
        if self.expected_size is not None and here != self.expected_size:
            raise SourceError(
                Reason.LENGTH_MISMATCH, f"{_host(self.url)} sent {here} of {self.expected_size} bytes"
            )


def _chunks(response: httpx.Response, url: str) -> Iterator[bytes]:
    """The body as it was sent, in pieces of about 1 MiB; what came before a fault is given out first."""
    waiting = bytearray()
    is_start = response.status_code == HTTPStatus.OK
    try:
        for piece in response.iter_raw():
            if is_start and looks_like_html(piece):
                raise _web_page(url)
            is_start = False
            waiting += piece
            if len(waiting) >= _CHUNK_BYTES:
                yield bytes(waiting)
                waiting.clear()
    except httpx.TransportError:
        if waiting:
            yield bytes(waiting)
        raise
    if waiting:
        yield bytes(waiting)


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _host(url: str) -> str:
    return urlsplit(url).hostname or url[:80]


def _too_large(url: str, cap_bytes: int) -> UntrustedError:
    return UntrustedError(Reason.TOO_LARGE, f"{_host(url)} sends more than {cap_bytes} bytes")


def _web_page(url: str) -> SourceError:
    return SourceError(
        Reason.HTML_BODY,
        f"got a web page from {_host(url)} in place of the artifact",
        "Log in to the network's portal, or publish the artifact where no login is needed.",
        at_once=False,
    )


def _wrong_bytes(url: str, wanted: str, found: str) -> SourceError:
    return SourceError(
        Reason.HASH_MISMATCH,
        f"{_host(url)} gives wrong bytes: SHA-256 {found[:12]}... in place of {wanted[:12]}...",
        "Publish the artifact that was released, under another URL if the server names no ETag.",
        at_once=False,
    )

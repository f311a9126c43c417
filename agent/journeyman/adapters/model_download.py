"""Brings one file of a model to this host: over https at each hop, resumed where that is safe.

Resumed is only with a 206 that continues exactly where the part ends, asked for with If-Range and a strong
validator; every other answer begins anew.  The digest of the whole, which the caller compares, has the last
word, so a part that was torn by a power cut costs a second transfer and nothing else.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlsplit

import httpx

from journeyman.adapters.model_blobs import write_all
from journeyman.core.quantities import bytes_text
from journeyman.errors import DownloadError, HostError, UsageError
from journeyman_updater.contract.http_rules import (
    ContentRange,
    Hop,
    RetryPolicy,
    Tries,
    judge_hop,
    origin,
    retry_after_seconds,
    strong_validator,
)

# How often the room on the disk is looked at again: others write there, too.
LOOK_BYTES = 64 << 20
REDIRECTS = {301, 302, 303, 307, 308}
WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}
NO_PROXY_FOR_LOOPBACK = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')

Progress = Callable[[str], None]
Result = TypeVar("Result")


@dataclass(frozen=True)
class DownloadRules:
    """How models are fetched.

    Attributes:
        hub_url: where `hf://` leads, without a slash at its end.
        hub_token_file: holds the token that is sent to the hub alone; None for none.
        plain_http_hosts: hosts beside loopback to which http without TLS is allowed.
        stall_seconds: silence after which a transfer has stalled; there is no total deadline.
        most_redirects: hops after the first URL.
        retry: pauses between tries.
    """

    hub_url: str = "https://huggingface.co"
    hub_token_file: Path | None = None
    plain_http_hosts: frozenset[str] = frozenset()
    stall_seconds: float = 60.0
    most_redirects: int = 5
    retry: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass(frozen=True)
class Offer:
    """What a hub says of a file beforehand; None and empty where it does not."""

    size_bytes: int | None = None
    sha256: str = ""


class TryAgainError(Exception):
    """The transfer broke off in a way that another try may mend.

    Args:
        cause: what is told if no try mends it.
        wait_seconds: what the server asked for with Retry-After, or None.
    """

    def __init__(self, cause: DownloadError, wait_seconds: float | None = None) -> None:
        super().__init__(cause.message)
        self.cause = cause
        self.wait_seconds = wait_seconds


class GrowingFile:
    """What came so far, and the validator by which the server may complete it.

    Args:
        file: open for reading and appending; stays open.
        facts: where the validator is kept.
    """

    def __init__(self, file: IO[bytes], facts: Path) -> None:
        self._file = file
        self._facts = facts

    def size(self) -> int:
        return self._file.seek(0, 2)

    def validator(self) -> str:
        """Empty if the file has to begin anew."""
        try:
            return str(json.loads(self._facts.read_bytes())["validator"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def begin(self, headers: Mapping[str, str]) -> None:
        """Starts over for the answer with these headers."""
        self._file.truncate(0)
        validator = strong_validator(
            headers.get("ETag", ""), headers.get("Last-Modified", ""), headers.get("Date", "")
        )
        self._facts.write_text(json.dumps({"validator": validator}))

    def append(self, data: bytes) -> None:
        """Adds to it at once, so that a process that is killed loses nothing of what it has received."""
        write_all(self._file, data)


class ModelDownloader:
    """Fetches over HTTP.

    Args:
        rules: limits and trust.
        pause: waits so many seconds between two tries.
        fraction: random from 0 to 1, for jitter.
    """

    def __init__(
        self,
        rules: DownloadRules,
        *,
        pause: Callable[[float], None] = time.sleep,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self.rules = rules
        self._pause = pause
        self._fraction = fraction

    def offer(self, url: str) -> Offer:
        """Asks a hub for size and SHA-256 of a file, which it tells in the head of its first answer.

        Raises:
            DownloadError: it cannot be asked, or has no such file.
            HostError: the token file cannot be read.
        """
        return self.retrying(lambda: self._ask(url), lambda: 0)

    def fetch(
        self,
        url: str,
        part: GrowingFile,
        *,
        judge: Callable[[bytes, str], None],
        size_bytes: int | None,
        room_for: Callable[[int], None],
        progress: Progress,
    ) -> None:
        """Completes the part.

        Args:
            url: of the file.
            part: what is here already.
            judge: raises ModelError if what begins with these bytes, of that name, is not what is wanted.
            size_bytes: how long it must be; None where nobody knows.
            room_for: raises HostError if so many more bytes have no room on the disk.
            progress: gets a line at each percent.

        Raises:
            DownloadError: the way or the server; what came stays for the next call.
            ModelError: from `judge`.
            HostError: from `room_for`, or the token file cannot be read.
            OSError: from the disk.
        """
        self.retrying(
            lambda: _Transfer(self, url, part, judge, size_bytes, room_for, progress).run(), part.size
        )

    def retrying(self, work: Callable[[], Result], here: Callable[[], int]) -> Result:
        """Tries again until it works, or until too many tries in a row bring nothing new."""
        tries = Tries(self.rules.retry, here())
        while True:
            try:
                return work()
            except TryAgainError as error:
                pause = tries.pause_after(here(), self._fraction(), error.wait_seconds)
                if pause is None:
                    raise error.cause from error
                self._pause(pause)

    def _ask(self, url: str) -> Offer:
        with self._client() as client:
            for response in self._hops(client, "HEAD", url, {}):
                size = response.headers.get("X-Linked-Size", "")
                digest = _SHA256.fullmatch(response.headers.get("X-Linked-Etag", ""))
                # Where it redirects to is a store that knows nothing of the digest.
                if digest or response.status_code == HTTPStatus.OK:
                    return Offer(int(size) if size.isdigit() else None, digest[1] if digest else "")
        return Offer()

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Opens a URL, following redirects hop by hop; also names what fails while the body is read.

        Each call makes its own client: proxies and addresses are looked up anew, as networks change.

        Raises:
            TryAgainError, DownloadError, UsageError, HostError: see `fetch`.
        """
        with self._client() as client:
            *_, response = self._hops(client, "GET", url, headers)
            try:
                yield response
            finally:
                response.close()

    @contextmanager
    def _client(self) -> Iterator[httpx.Client]:
        timeout = httpx.Timeout(self.rules.stall_seconds)
        try:
            with httpx.Client(timeout=timeout, mounts=NO_PROXY_FOR_LOOPBACK) as client:
                yield client
        except httpx.InvalidURL as error:
            raise UsageError(f"that is no URL: {error}") from error
        except httpx.TransportError as error:
            raise TryAgainError(
                DownloadError(
                    f"the transfer broke off: {str(error) or type(error).__name__}",
                    "Check the network; the same command goes on where it stopped.",
                )
            ) from error

    def _hops(
        self, client: httpx.Client, method: str, url: str, headers: Mapping[str, str]
    ) -> Iterator[httpx.Response]:
        """The answers of all hops; only the last has a body that is to be read."""
        came_from = None
        fine = {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}
        if "Range" in headers:
            fine.add(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        for _ in range(self.rules.most_redirects + 1):
            self._check_hop(url, came_from)
            request = client.build_request(method, url, headers=self._headers(url, headers))
            response = client.send(request, stream=True)
            if response.status_code in fine:
                yield response
                return
            response.close()
            location = response.headers.get("Location", "")
            if response.status_code not in REDIRECTS or not location:
                raise refused(response)
            yield response
            came_from, url = url, str(response.url.join(location))
        raise DownloadError(
            f"{urlsplit(url).hostname} redirects more than {self.rules.most_redirects} times",
            "Give the URL of the file itself.",
        )

    def _check_hop(self, url: str, came_from: str | None) -> None:
        match judge_hop(url, came_from=came_from, plain_hosts=self.rules.plain_http_hosts):
            case Hop.NO_URL:
                raise UsageError(f"{url[:200]!r} is no URL that can be fetched", "Use https.")
            case Hop.DOWNGRADED:
                how = f"{urlsplit(came_from).hostname} redirects" if came_from else "the URL points"
                raise DownloadError(
                    f"{how} to {urlsplit(url).hostname} over plain http",
                    "Use https, or name the host in model_plain_http_hosts.",
                )

    def _headers(self, url: str, headers: Mapping[str, str]) -> dict[str, str]:
        file = self.rules.hub_token_file
        if file is None or origin(url) != origin(self.rules.hub_url):
            return {**headers, "Accept-Encoding": "identity"}
        try:
            token = file.read_text().strip()
        except OSError as error:
            raise HostError(
                f"the token file {file} cannot be read: {error.strerror}", "Mend model_hub_token_file."
            ) from error
        return {**headers, "Accept-Encoding": "identity", "Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class _Transfer:
    """One request for what is missing of one file."""

    downloader: ModelDownloader
    url: str
    part: GrowingFile
    judge: Callable[[bytes, str], None]
    size_bytes: int | None
    room_for: Callable[[int], None]
    progress: Progress

    def run(self) -> None:
        offset, validator = self.part.size(), self.part.validator()
        headers = {"Range": f"bytes={offset}-", "If-Range": validator} if offset and validator else {}
        with self.downloader.get(self.url, headers) as response:
            if response.headers.get("Content-Range", "") == f"bytes */{offset}":
                # A 416 for the very version that we have: the last call ended after its last byte.
                return
            if response.status_code == HTTPStatus.OK:
                self.part.begin(response.headers)
                length = response.headers.get("Content-Length", "")
                total = int(length) if length.isdigit() else None
            else:
                total = self._continued(response, offset)
            self._append(response, total)

    def _continued(self, response: httpx.Response, offset: int) -> int | None:
        found = ContentRange.parse(response.headers.get("Content-Range", ""))
        if response.status_code == HTTPStatus.PARTIAL_CONTENT and found is not None and found.first == offset:
            return found.total
        # The part does not fit what lies there now, so the next try takes the whole.
        self.part.begin({})
        raise TryAgainError(DownloadError(f"{self._host} does not give the range that was asked for"))

    def _append(self, response: httpx.Response, total: int | None) -> None:
        here = self.part.size()
        told = looked = -1
        for chunk in response.iter_raw():
            if looked != here // LOOK_BYTES:
                looked = here // LOOK_BYTES
                self.room_for(len(chunk) if total is None else total - here)
            if here == 0:
                self.judge(chunk, self.url)
            self.part.append(chunk)
            here += len(chunk)
            if self.size_bytes is not None and here > self.size_bytes:
                raise DownloadError(f"{self._host} sends more than the {self.size_bytes} bytes that it told")
            # Of a file of unknown size a line at each look at the disk is enough.
            percent = here // LOOK_BYTES if total is None else here * 100 // max(total, 1)
            if percent != told:
                told = percent
                self.progress(_line(here, total))
        if total is not None and here != total:
            raise TryAgainError(DownloadError(f"{self._host} sent {here} of {total} bytes"))

    @property
    def _host(self) -> str:
        return urlsplit(self.url).hostname or self.url[:80]


def _line(here: int, total: int | None) -> str:
    if total is None:
        return f"fetching: {bytes_text(here)}"
    return f"fetching: {here * 100 // max(total, 1)} % of {bytes_text(total)}"


def refused(response: httpx.Response) -> DownloadError | TryAgainError:
    """What to raise for an answer that is no file."""
    status = response.status_code
    advice = "Check the URL."
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        advice = "Check the URL; a model behind a login needs model_hub_token_file, and its licence accepted."
    error = DownloadError(f"{response.url.host} answered {status} {response.reason_phrase}".strip(), advice)
    if status not in WORTH_ANOTHER_TRY:
        return error
    return TryAgainError(error, _asked_wait(response.headers))


def _asked_wait(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds, by the server's own clock."""
    try:
        return retry_after_seconds(headers.get("Retry-After", ""), parsedate_to_datetime(headers["Date"]))
    except (KeyError, ValueError):
        return None

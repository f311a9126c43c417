"""The decisions of a download: which URL may be followed, what a 206 must say, how long to wait.  Pure.

Shared by the updater, which fetches releases, and the agent, which fetches models.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from urllib.parse import urlsplit

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_LONGEST_RETRY_AFTER_SECONDS = 3600.0


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine, without asking a name server."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Hop(Enum):
    """What may become of a URL before it is asked."""

    ALLOWED = auto()
    NO_URL = auto()
    DOWNGRADED = auto()


def judge_hop(url: str, *, came_from: str | None, plain_hosts: frozenset[str]) -> Hop:
    """Judges a URL before it is asked for: https, or a host to which plain http is allowed.

    Args:
        url: the URL.
        came_from: the URL that redirected here, or None for the first one.
        plain_hosts: host names beside loopback to which plain http is allowed.

    Returns:
        NO_URL for what is no http or https URL; DOWNGRADED for plain http where that is not allowed, and
        everywhere after https.
    """
    try:
        parts = urlsplit(url)
        # Reading the port judges it.
        host = (parts.hostname or "") if parts.port != 0 else ""
    except ValueError:
        return Hop.NO_URL
    if not host or parts.scheme not in {"https", "http"}:
        return Hop.NO_URL
    after_https = came_from is not None and urlsplit(came_from).scheme == "https"
    plain_is_fine = not after_https and (is_loopback(host) or host in plain_hosts)
    return Hop.ALLOWED if parts.scheme == "https" or plain_is_fine else Hop.DOWNGRADED


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port (RFC 6454); credentials stay within one."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)


@dataclass(frozen=True)
class ContentRange:
    """What a 206 says it carries (RFC 9110 §14.4).

    Attributes:
        first: the offset of its first byte.
        last: the offset of its last byte.
        total: the size of the whole, or None if the server does not know.
    """

    first: int
    last: int
    total: int | None

    @classmethod
    def parse(cls, text: str) -> ContentRange | None:
        """Returns None for anything that is not one well-formed range of bytes."""
        match = _CONTENT_RANGE.fullmatch(text.strip())
        if not match or int(match[1]) > int(match[2]):
            return None
        return cls(int(match[1]), int(match[2]), None if match[3] == "*" else int(match[3]))


def strong_validator(etag: str, last_modified: str, date: str) -> str:
    """The validator under which a partial file may be completed with If-Range (RFC 9110 §13.1.5).

    Returns:
        A strong ETag, or a Last-Modified that is a minute older than the answer and so cannot hide a second
        change (§8.8.2.2), or an empty string.
    """
    if etag.startswith('"') and etag.endswith('"') and len(etag) > 1:
        return etag
    modified, answered = _http_date(last_modified), _http_date(date)
    old_enough_seconds = 60
    if modified and answered and (answered - modified).total_seconds() >= old_enough_seconds:
        return last_modified
    return ""


def retry_after_seconds(text: str, now: datetime) -> float | None:
    """Reads Retry-After (RFC 9110 §10.2.3): seconds or a date; an hour at most, None if there is none."""
    if not text:
        return None
    if text.strip().isdigit():
        seconds = float(text.strip()[:6])
    else:
        when = _http_date(text)
        if when is None:
            return None
        seconds = (when - now).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_RETRY_AFTER_SECONDS)


def _http_date(text: str) -> datetime | None:
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return when if when.tzinfo else None


@dataclass(frozen=True)
class RetryPolicy:
    """How often and after what pause a failed transfer is tried again.

    Attributes:
        attempts: tries in a row without any new byte before it is given up.
        base_seconds: the first pause is drawn from 0 to this.
        longest_seconds: no pause is drawn from more than this.
    """

    attempts: int = 5
    base_seconds: float = 1.0
    longest_seconds: float = 60.0

    def pause_seconds(self, failures: int, fraction: float, asked_seconds: float | None = None) -> float:
        """Exponential with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS 2015).

        Args:
            failures: how many tries in a row have failed, from 1.
            fraction: random, from 0 to 1.
            asked_seconds: what the server asked for with Retry-After, which is a floor.
        """
        ceiling = min(self.longest_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))
        return max(asked_seconds or 0.0, ceiling * fraction)


class Tries:
    """Counts the failed tries of one transfer; each that brought new bytes forgives those before it.

    Args:
        policy: how many, and how long the pauses are.
        here: bytes that are here before the first try.
    """

    def __init__(self, policy: RetryPolicy, here: int) -> None:
        self._policy = policy
        self._failures = 0
        self._best = here

    def pause_after(self, here: int, fraction: float, asked_seconds: float | None = None) -> float | None:
        """The pause in seconds before the next try, or None if there shall be none.

        Args:
            here: bytes that are here after the try that failed.
            fraction: random, from 0 to 1.
            asked_seconds: what the server asked for with Retry-After; more than the longest pause is a no.
        """
        self._failures = 1 if here > self._best else self._failures + 1
        self._best = max(self._best, here)
        if (asked_seconds or 0.0) > self._policy.longest_seconds or self._failures >= self._policy.attempts:
            return None
        return self._policy.pause_seconds(self._failures, fraction, asked_seconds)

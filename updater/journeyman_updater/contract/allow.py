"""The annotation by which people far away let a release be tried again that was rejected on this host.

    journeyman.dev/allow: 2026-12-01T18:00:00Z <sha256> the disk was at fault

It names bytes that this host has already had, and an end and a reason; so it can neither bring a release
here nor choose one.  The updater obeys it, once; the agent tells whoever wrote it what is wrong with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

ALLOW = "journeyman.dev/allow"
# A forgotten annotation must not wait for a release for good.
LONGEST = timedelta(days=30)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Allowance:
    """What the annotation says.

    Attributes:
        until: from then on it says nothing any more.
        sha256: of the artifact that may be tried again.
        reason: in the words of whoever wrote it.
    """

    until: datetime
    sha256: str
    reason: str


def parse_allowance(text: str, now: datetime) -> Allowance:
    """Reads the annotation.

    Args:
        text: its value.
        now: by the server's clock, aware.

    Raises:
        ValueError: it is none; the message says what to write.
    """
    end, sha256, reason = [*text.split(maxsplit=2), "", "", ""][:3]
    try:
        until = datetime.fromisoformat(end)
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        raise ValueError("begin with its end, such as 2026-12-01T18:00:00Z")
    if not _SHA256.fullmatch(sha256):
        raise ValueError("name the whole SHA-256 of the release after the end")
    if not reason:
        raise ValueError("add the reason after the SHA-256")
    if until - now > LONGEST:
        raise ValueError(f"the end is more than {LONGEST.days} days away")
    return Allowance(until, sha256, " ".join(reason.split()))

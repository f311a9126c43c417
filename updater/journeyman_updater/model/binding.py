"""What a release's signature promises: the fields of its trusted comment.

    product=journeyman os=linux arch=amd64 version=0.2.0 sequence=7 size=18123456 sha256=<64 hex digits>
    expires=2027-06-30T00:00:00Z        (all on one line)

Fields are separated by single spaces and may stand in any order; each occurs once.  Unknown fields are
ignored, so that a later release may say more to an earlier updater.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from journeyman_updater.errors import Reason, UntrustedError
from journeyman_updater.model.release import Sha256, VersionId

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"[0-9]{1,15}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_PATTERNS = {
    "product": _NAME,
    "os": _NAME,
    "arch": _NAME,
    "sequence": _NUMBER,
    "size": _NUMBER,
    "sha256": _SHA256,
    "expires": _TIME,
}


@dataclass(frozen=True)
class ReleaseBinding:
    """What was signed.

    Attributes:
        product: the name of the product, `journeyman`.
        os: the operating system as Go spells it: `linux`, `darwin`.
        arch: the processor as Go spells it: `amd64`, `arm64`.
        version: for people, and compared with what the program itself says.
        sequence: rises with each release of one product; a lower one than seen before is a replay.
        size: of the artifact, in bytes.
        sha256: of the artifact, in lower-case hex; the identity of the release.
        expires: when the signature stops to permit an update; aware, UTC, whole seconds.
    """

    product: str
    os: str
    arch: str
    version: VersionId
    sequence: int
    size: int
    sha256: Sha256
    expires: datetime

    def to_comment(self) -> str:
        """The trusted comment that says all of it."""
        return (
            f"product={self.product} os={self.os} arch={self.arch} version={self.version.spelled} "
            f"sequence={self.sequence} size={self.size} sha256={self.sha256} "
            f"expires={self.expires.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        )

    @classmethod
    def from_comment(cls, comment: str) -> ReleaseBinding:
        """Reads a trusted comment.  Whether it is to be trusted, the signature decides.

        Raises:
            UntrustedError: BadSignature; a field is missing, malformed or said twice.
        """
        fields: dict[str, str] = {}
        for word in comment.split(" "):
            name, _, value = word.partition("=")
            if name in fields:
                raise _unreadable(f"says {name} twice")
            fields[name] = value
        for name, pattern in _PATTERNS.items():
            if not pattern.fullmatch(fields.get(name, "")):
                raise _unreadable(f"has no well-formed {name}")
        try:
            version = VersionId(fields.get("version", ""))
            expires = datetime.fromisoformat(fields["expires"])
        except ValueError as error:
            raise _unreadable(f"cannot be read: {error}") from error
        return cls(
            product=fields["product"],
            os=fields["os"],
            arch=fields["arch"],
            version=version,
            sequence=int(fields["sequence"]),
            size=int(fields["size"]),
            sha256=Sha256(fields["sha256"]),
            expires=expires,
        )


def _unreadable(what: str) -> UntrustedError:
    return UntrustedError(
        Reason.BAD_SIGNATURE,
        f"the trusted comment of the signature {what}",
        "Sign the release with scripts/release, or with a trusted comment as docs/releases.md shows.",
    )

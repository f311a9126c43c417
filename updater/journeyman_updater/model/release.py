"""A release by name and by content: only the content counts."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NewType

Sha256 = NewType("Sha256", str)
"""64 lower-case hexadecimal digits."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(
    r"v?(?P<core>(?:0|[1-9]\d{0,8})(?:\.(?:0|[1-9]\d{0,8})){2})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
    r"(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LONGEST = 128
_SHORT_SHA = 12


def parse_sha256(text: str) -> Sha256:
    """Returns the digest in lower case.

    Raises:
        ValueError: it is not a SHA-256.
    """
    lowered = text.strip().lower()
    if not _SHA256.fullmatch(lowered):
        raise ValueError(f"{text[:80]!r} is not a SHA-256: give 64 hexadecimal digits")
    return Sha256(lowered)


@dataclass(frozen=True)
class VersionId:
    """A version string that has been parsed, so that it may become a part of a path.

    Attributes:
        spelled: as it was written; echoed to the operator unchanged.
    """

    spelled: str

    def __post_init__(self) -> None:
        if len(self.spelled) > _LONGEST or not _VERSION.fullmatch(self.spelled):
            raise ValueError(f"{self.spelled[:80]!r} is not a version: write it like 1.2.3 or v1.2.3-rc.1")

    @property
    def canonical(self) -> str:
        """Without the `v` and without build metadata, both of which say nothing about precedence."""
        return self.spelled.removeprefix("v").partition("+")[0]

    def same_as(self, other: VersionId) -> bool:
        """Whether both name the same version, however they are spelled."""
        return self.canonical == other.canonical

    def sequence(self) -> int:
        """The usual place of a release in the order of all: 1002003 for 1.2.3."""
        return functools.reduce(lambda number, part: number * 1000 + part, self.precedence()[0])

    def precedence(self) -> tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]:
        """A key that sorts as Semantic Versioning 2.0.0, section 11, says."""
        core, _, pre = self.canonical.partition("-")
        numbers = tuple(int(part) for part in core.split("."))
        if not pre:
            # A release comes after all of its pre-releases.
            return numbers, ((2, 0, ""),)
        parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split(".")]
        return numbers, tuple(parts)


@dataclass(frozen=True)
class Slot:
    """One release in the state document.

    Attributes:
        version: as the request spelled it.
        sha256: of the artifact; this is the identity.
        nonce: new at each activation; the agent echoes it.
        sequence: under which it was signed; zero for an unsigned one.
    """

    version: VersionId
    sha256: Sha256
    nonce: str = ""
    sequence: int = 0

    @property
    def folder(self) -> str:
        """The name below `versions/`."""
        return folder_name(self.version, self.sha256)


def folder_name(version: VersionId, sha256: Sha256) -> str:
    """`<version>-<sha12>`; the `+` of build metadata is left out."""
    return f"{version.canonical}-{sha256[:_SHORT_SHA]}"


@dataclass(frozen=True)
class UpdateRequest:
    """What the control plane, or a person at this host, wants to run.

    Attributes:
        version: the target version as spelled.
        url: where the artifact is; `file:` for one that lies on this host.
        sha256: of the artifact.
        allow: the annotation `journeyman.dev/allow` of the node that carries the request, or an empty string.
    """

    version: VersionId
    url: str
    sha256: Sha256
    allow: str = ""

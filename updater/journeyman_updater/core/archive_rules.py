"""What a release's archive may hold.  Pure: names, kinds, modes and totals go in, a refusal comes out.

A tree is regular files and folders alone.  Links of both kinds are refused even where they point inside: the
manifest lists files by content, and a link would be a second way to one of them.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from enum import Enum, auto

from journeyman_updater.errors import Reason, ReleaseError
from journeyman_updater.ports import UnpackLimits

_FORBIDDEN_BITS = 0o7022  # setuid, setgid, sticky, and writable for group or others.
_LONGEST_PATH = 1024  # The PATH_MAX of macOS, the smallest that we serve.
_LONGEST_PART = 255
# Control characters, the separator of other systems, and halves of surrogate pairs, which no encoding has.
_UNWRITABLE = re.compile(r"[\x00-\x1f\\\ud800-\udfff]")
_HIGHEST_RATIO = 50
_SMALL_ONES_MAY_BYTES = 1024**2


class MemberKind(Enum):
    """What a member of an archive is."""

    FILE = auto()
    FOLDER = auto()
    SYMLINK = auto()
    HARDLINK = auto()
    SPECIAL = auto()


@dataclass(frozen=True)
class Member:
    """One member as the archive describes it.

    Attributes:
        path: as it stands there.
        kind: what it is.
        size: in bytes; 0 for folders.
        mode: the permission bits.
        target: of a link, else an empty string.
    """

    path: str
    kind: MemberKind
    size: int = 0
    mode: int = 0o644
    target: str = ""


def most_bytes(artifact_bytes: int, limits: UnpackLimits) -> int:
    """How many bytes, headers included, an artifact of that size may unpack to.

    Python code compresses 3 to 5 times and deflate reaches 1032, so a high ratio is a bomb.
    """
    return min(limits.total_bytes, max(_SMALL_ONES_MAY_BYTES, artifact_bytes * _HIGHEST_RATIO))


@dataclass
class ArchiveRules:
    """Judges the members of one archive in their order."""

    limits: UnpackLimits = field(default_factory=UnpackLimits)
    _spelled: dict[str, str] = field(default_factory=dict)
    _files: set[str] = field(default_factory=set)
    _count: int = 0

    def admit(self, member: Member) -> tuple[str, ...]:
        """Judges the next member.

        Returns:
            The parts of its path below the tree; empty for the tree itself.

        Raises:
            ReleaseError: with the reason; nothing of this archive may be used.
        """
        self._count += 1
        if self._count > self.limits.members:
            raise ReleaseError(
                Reason.DECOMPRESSION_BOMB, f"the archive has more than {self.limits.members} members"
            )
        parts = safe_parts(member.path)
        if not parts and member.kind is not MemberKind.FOLDER:
            raise ReleaseError(Reason.UNSAFE_PATH, "the archive has a member in place of the whole tree")
        _check_kind(member)
        if member.mode & _FORBIDDEN_BITS:
            raise ReleaseError(Reason.BAD_MODE, f"{member.path[:200]!r} has the mode {member.mode:04o}")
        self._check_clash(parts, member.kind)
        return parts

    def _check_clash(self, parts: tuple[str, ...], kind: MemberKind) -> None:
        """Refuses a path that is here already, a file as a folder, and two spellings of one path."""
        for length in range(1, len(parts) + 1):
            path = "/".join(parts[:length])
            folded = _fold(path)
            is_file = kind is MemberKind.FILE and length == len(parts)
            known = self._spelled.get(folded)
            if known is not None and (known != path or is_file or folded in self._files):
                raise ReleaseError(
                    Reason.DUPLICATE_MEMBER, f"{path[:200]!r} occurs twice, or as {known[:200]!r} as well"
                )
            self._spelled[folded] = path
            if is_file:
                self._files.add(folded)


def safe_parts(path: str) -> tuple[str, ...]:
    """Splits the path of a member.

    Raises:
        ReleaseError: UnsafePath; it is absolute, climbs, or cannot be written on each of our file systems.
    """
    parts = tuple(part for part in path.removesuffix("/").split("/") if part != ".")
    unsafe = (
        path.startswith("/")
        or len(path.encode(errors="surrogatepass")) > _LONGEST_PATH
        or any(part in {"", ".."} or not _is_writable_name(part) for part in parts)
    )
    if unsafe:
        raise ReleaseError(Reason.UNSAFE_PATH, f"the archive has a member {path[:200]!r}")
    return parts


def _is_writable_name(part: str) -> bool:
    return _UNWRITABLE.search(part) is None and len(part.encode()) <= _LONGEST_PART


def _check_kind(member: Member) -> None:
    name = f"{member.path[:200]!r}"
    if member.kind is MemberKind.SYMLINK:
        raise ReleaseError(Reason.UNSAFE_LINK, f"{name} is a link to {member.target[:200]!r}")
    if member.kind is MemberKind.HARDLINK:
        raise ReleaseError(Reason.UNSAFE_LINK, f"{name} is a hard link to {member.target[:200]!r}")
    if member.kind is MemberKind.SPECIAL:
        raise ReleaseError(Reason.UNSAFE_TYPE, f"{name} is a device, a pipe or another special file")


def _fold(path: str) -> str:
    """Equal for paths that are one file on a file system that ignores case and composition, as APFS does."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())

"""What kind of file an artifact is, by its first bytes; never by its name or its Content-Type."""

from __future__ import annotations

from journeyman_updater.errors import Reason, ReleaseError

HEAD_BYTES = 512
"""How many bytes of a file these functions want to see; fewer if the file is shorter."""

_GZIP = b"\x1f\x8b"
_TAR_MAGIC = b"ustar"
_TAR_MAGIC_OFFSET = 257
# Magic numbers: ELF (System V ABI), Mach-O in both byte orders and universal, zip, xz, zstd, bzip2.
_OTHERS = {
    b"\x7fELF": "a bare Linux executable (ELF)",
    b"\xcf\xfa\xed\xfe": "a bare macOS executable (Mach-O)",
    b"\xfe\xed\xfa\xcf": "a bare macOS executable (Mach-O)",
    b"\xca\xfe\xba\xbe": "a bare universal macOS executable (Mach-O)",
    b"PK\x03\x04": "a zip archive",
    b"\xfd7zXZ\x00": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"BZh": "a bzip2 file",
    b"#!": "a script",
}
_PUBLISH_TREE = "Publish the tar.gz that scripts/release builds; nothing else is installed."


def looks_like_html(head: bytes) -> bool:
    """Whether a file begins as web pages do."""
    text = head[:HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return text.startswith((b"<!doctype html", b"<html", b"<head", b"<?xml"))


def name_of(head: bytes) -> str:
    """What a file that is no gzip seems to be, for people."""
    if looks_like_html(head):
        return "a web page"
    if is_tar(head):
        return "a tar archive that is not compressed"
    return next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "of an unknown format")


def is_gzip(head: bytes) -> bool:
    return head.startswith(_GZIP)


def is_tar(head: bytes) -> bool:
    return head[_TAR_MAGIC_OFFSET : _TAR_MAGIC_OFFSET + len(_TAR_MAGIC)] == _TAR_MAGIC


def require_gzip(head: bytes) -> None:
    """Judges the first bytes of an artifact.

    Raises:
        ReleaseError: WrongFormat; it is no gzip file.
    """
    if not is_gzip(head):
        raise ReleaseError(
            Reason.WRONG_FORMAT, f"the artifact is {name_of(head)}, not a tar.gz", _PUBLISH_TREE
        )


def require_tar(head: bytes) -> None:
    """Judges the first bytes of what was compressed.

    Raises:
        ReleaseError: Compressed if it is a gzip once more, WrongFormat if it is anything else than a tar.
    """
    if is_gzip(head):
        raise ReleaseError(Reason.COMPRESSED, "the artifact is compressed twice", _PUBLISH_TREE)
    if not is_tar(head):
        raise ReleaseError(
            Reason.WRONG_FORMAT,
            f"the artifact holds, compressed, a file that is {name_of(head)}",
            _PUBLISH_TREE,
        )

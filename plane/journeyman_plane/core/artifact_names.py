"""Which versions and file names the artifact store takes: each becomes a part of a path."""

from __future__ import annotations

import re

from journeyman_plane.errors import RequestError

SIGNATURE_SUFFIX = ".minisig"
# Neither begins with a dot, so neither can be `..` or one of the store's own temporary files.
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,127}")
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._+-]{0,199}")


def check_names(version: str, name: str) -> None:
    """Refuses what could lead out of the store.

    Raises:
        RequestError: 400.
    """
    for what, text, pattern in (("version", version, _VERSION), ("name", name, _NAME)):
        if not pattern.fullmatch(text):
            raise RequestError(
                f"{text[:80]!r} is no {what} of an artifact: use letters, digits and . - + alone",
                status=400,
                reason="BadRequest",
            )


def is_replaceable(name: str) -> bool:
    """Whether a file may be replaced: a signature is made anew before it expires, an artifact never is."""
    return name.endswith(SIGNATURE_SUFFIX)

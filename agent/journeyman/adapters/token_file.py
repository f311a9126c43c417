"""The token file of this node, for whoever renews what is in it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from journeyman.errors import HostError
from journeyman_updater.contract import write_durably


class TokenFile:
    """A file that is ours to replace.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        """The token; empty if there is none, or it cannot be read now."""
        with contextlib.suppress(OSError, ValueError):
            return self._path.read_text(encoding="ascii").strip()
        return ""

    def write(self, token: str) -> None:
        """Replaces it durably, 0600.  Raises HostError."""
        try:
            write_durably(self._path, f"{token}\n".encode())
        except OSError as error:
            raise HostError(
                f"the new token cannot be kept in {self._path}: {error.strerror}", "Mend the permissions."
            ) from error

"""Who still runs from a version: workers outlive the agent that started them, and keep its files in use."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


class ProcessLeases:
    """Implements the port Leases by looking at each process of this host.

    Args:
        versions: the folder of versions.
    """

    def __init__(self, versions: Path) -> None:
        self._pattern = re.compile(re.escape(f"{versions}/").encode() + rb"([0-9A-Za-z.-]+)")

    def in_use(self) -> frozenset[str] | None:
        """Folders that a command line, an environment or a mapped file of a process names; see the port."""
        try:
            text = _text_of_macos() if sys.platform == "darwin" else _text_of_linux()
        except OSError:
            return None
        return frozenset(found.decode() for found in self._pattern.findall(text))


def _text_of_macos() -> bytes:
    # `-E` adds the environment, where the search path of a release's Python stands.
    return subprocess.run(["/bin/ps", "-axwwE", "-o", "command="], capture_output=True, check=True).stdout


def _text_of_linux() -> bytes:
    texts: list[bytes] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            texts.extend(_read(process / name) for name in ("cmdline", "environ", "maps"))
    return b"\0".join(texts)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        # It has ended, or belongs to another user, who does not run our versions.
        return b""

"""The files of one download: the part that grows, and what is remembered of an origin that gave wrong bytes.

<destination>              the whole and verified artifact
<destination>.part         what came so far
<destination>.part.json    the validators of the server's answer, by which the part may be completed
<destination>.wrong.json   which URL gave wrong bytes, and how to ask whether it still has them
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from journeyman_updater.contract.http_rules import strong_validator
from journeyman_updater.ports import FileSystem


class Part:
    """The file that grows.

    Args:
        files: where it is written.
        destination: what it becomes.
    """

    def __init__(self, files: FileSystem, destination: Path) -> None:
        self.path = destination.with_name(destination.name + ".part")
        self._destination = destination
        self._facts = destination.with_name(destination.name + ".part.json")
        self._files = files

    def size(self) -> int:
        """How many bytes are here."""
        return self._files.size(self.path) or 0

    def begin(self, headers: Mapping[str, str]) -> None:
        """Starts over with an empty part.

        Args:
            headers: of the answer whose body follows.
        """
        etag, modified = headers.get("ETag", ""), headers.get("Last-Modified", "")
        unchanged = {"If-None-Match": etag} if etag else {"If-Modified-Since": modified} if modified else {}
        facts = {
            "validator": strong_validator(etag, modified, headers.get("Date", "")),
            "unchanged": unchanged,
        }
        self.drop()
        self._files.write(self.path, b"")
        self._files.write(self._facts, json.dumps(facts).encode())

    def append(self, data: bytes) -> None:
        """Adds to it.  It need not be durable: the digest of the whole finds a torn one."""
        self._files.append(self.path, data)

    def validator(self) -> str:
        """Under which the server may complete it; an empty string if it has to start over."""
        return str(_read(self._files, self._facts).get("validator", ""))

    def unchanged(self) -> dict[str, str]:
        """The request header that asks whether the server still has the same; empty if there is none."""
        return dict(_read(self._files, self._facts).get("unchanged", {}))

    def keep(self) -> None:
        """Makes it the artifact, durably."""
        self._files.fsync(self.path)
        self._files.rename(self.path, self._destination)
        self.drop()
        self._files.fsync_directory(self._destination.parent)

    def drop(self) -> None:
        """Deletes it with what is known of it."""
        _remove(self._files, self.path, self._facts)


class WrongBytes:
    """Remembers from run to run that a URL gave wrong bytes, so that they are not fetched for ever.

    Args:
        files: where it is written.
        destination: the artifact that was wanted.
    """

    def __init__(self, files: FileSystem, destination: Path) -> None:
        self._path = destination.with_name(destination.name + ".wrong.json")
        self._files = files

    def note(self, url: str, found_sha256: str, unchanged: Mapping[str, str]) -> None:
        """Writes down what was found, and how to ask for a change."""
        value = {"url": url, "sha256": found_sha256, "unchanged": dict(unchanged)}
        self._files.write(self._path, json.dumps(value).encode())

    def recall(self, url: str) -> tuple[str, dict[str, str]] | None:
        """The digest of the wrong bytes and how to ask for a change; None if this URL gave none."""
        value = _read(self._files, self._path)
        if value.get("url") != url:
            return None
        return str(value.get("sha256", "")), dict(value.get("unchanged", {}))

    def forget(self) -> None:
        """Deletes the memory."""
        _remove(self._files, self._path)


def _read(files: FileSystem, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(files.read(path))
    except (FileNotFoundError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _remove(files: FileSystem, *paths: Path) -> None:
    for path in paths:
        if files.size(path) is not None:
            files.unlink(path)

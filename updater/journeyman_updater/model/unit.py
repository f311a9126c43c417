"""What a service manager starts the agent by: one unit, one property list, or the scripts of one service."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT_VERSION = 1
# A person may have written anything into a file that we have to be able to put back.
_ANY_BYTES = "surrogateescape"


@dataclass(frozen=True)
class Unit:
    """The files of the agent's own service, as one release wants them.

    Attributes:
        files: content by file name; empty where there is no service manager.
    """

    files: Mapping[str, bytes]

    def to_json(self) -> bytes:
        texts = {name: content.decode(errors=_ANY_BYTES) for name, content in self.files.items()}
        return json.dumps({"format": FORMAT_VERSION, "files": texts}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Unit:
        """Reads what `to_json` wrote, be it by another release.

        Raises:
            ValueError: it is no unit.
        """
        value: Any = json.loads(data)
        if not isinstance(value, dict) or value.get("format") != FORMAT_VERSION:
            raise ValueError(f"not a unit in format {FORMAT_VERSION}")
        files = value.get("files")
        if not isinstance(files, dict) or not all(isinstance(text, str) for text in files.values()):
            raise ValueError("a unit without texts")
        return cls({name: text.encode(errors=_ANY_BYTES) for name, text in files.items()})

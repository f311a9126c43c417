"""Sealed lines: one JSON object a line with a CRC, in files that are only ever appended to.

A line begins and ends with a newline, so that one written after a torn tail stands alone.  Whatever does not
match its CRC (a torn tail, a run of zeros after a power cut) is no line.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any


def seal(value: Mapping[str, Any]) -> bytes:
    """One line with its CRC."""
    body = _canonical(value)
    return b'\n{"crc":%d,"line":%b}\n' % (zlib.crc32(body), body)


def unseal(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of all whole lines, in their order."""
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
            body = value["line"]
            whole = isinstance(body, dict) and zlib.crc32(_canonical(body)) == value["crc"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if whole:
            yield body


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

"""The rules for `metadata`: names and labels, as Kubernetes has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from journeyman_plane.errors import Cause

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_LONGEST_NAME = 253
_LONGEST_LABEL = 63
_TOTAL_ANNOTATIONS_BYTES = 256 * 1024


def metadata_causes(metadata: Mapping[str, Any]) -> list[Cause]:
    """Every field of `metadata` that breaks a rule."""
    name = metadata.get("name", "")
    if not name:
        return [
            Cause("metadata.name", "FieldValueRequired", "Required value: name or generateName is required")
        ]
    causes = []
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _SUBDOMAIN.fullmatch(name):
        message = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
        )
        causes.append(Cause("metadata.name", "FieldValueInvalid", message))
    for field in ("labels", "annotations"):
        causes += _map_causes(field, metadata.get(field))
    return causes


def _map_causes(field: str, values: Any) -> Iterator[Cause]:
    path = f"metadata.{field}"
    if values is None:
        return
    if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
        yield Cause(path, "FieldValueTypeInvalid", f"Invalid value: {path} must map strings to strings")
        return
    for key, value in values.items():
        prefix, _, name = key.rpartition("/")
        if not _fits(name) or (prefix and not _SUBDOMAIN.fullmatch(prefix)):
            yield Cause(path, "FieldValueInvalid", f'Invalid value: "{key}": is no qualified name')
        if field == "labels" and value and not _fits(value):
            yield Cause(path, "FieldValueInvalid", f'Invalid value: "{value}": is no label value')
    if field == "annotations":
        size = sum(len(key.encode()) + len(value.encode()) for key, value in values.items())
        if size > _TOTAL_ANNOTATIONS_BYTES:
            yield Cause(
                path, "FieldValueTooLong", f"Too long: may not be more than {_TOTAL_ANNOTATIONS_BYTES} bytes"
            )


def _fits(text: str) -> bool:
    return len(text) <= _LONGEST_LABEL and bool(_NAME_PART.fullmatch(text))

"""Structural schemas: pruning, defaulting and validation, as a Kubernetes API server does them.

See "Structural schemas" in the Kubernetes documentation of CustomResourceDefinitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from journeyman_plane.core.base64_text import is_base64
from journeyman_plane.core.schema_causes import causes_of
from journeyman_plane.errors import Cause

Schema = Mapping[str, Any]
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_FORMATS = FormatChecker(formats=())
_RANGES = {"int32": 2**31, "int64": 2**63}


@_FORMATS.checks("date-time", raises=ValueError)
def _is_date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


@_FORMATS.checks("byte")
def _is_byte(value: object) -> bool:
    return not isinstance(value, str) or is_base64(value)


def _unique_keys(_: Any, kind: str, value: Any, schema: Schema) -> Iterator[ValidationError]:
    """`x-kubernetes-list-type: map`: no two members have the same keys."""
    if kind != "map" or not isinstance(value, list):
        return
    seen = set()
    for position, member in enumerate(value):
        if not isinstance(member, Mapping):
            continue  # Its type is an error of its own.
        keys = {name: member.get(name) for name in schema["x-kubernetes-list-map-keys"]}
        identity = tuple(map(str, keys.values()))
        if identity in seen:
            yield ValidationError(f"Duplicate value: {keys}", validator="duplicate", path=[position])
        seen.add(identity)


def _pattern(_: Any, pattern: str, value: Any, __: Schema) -> Iterator[ValidationError]:
    """`pattern`, with `$` as the very end: Python alone would let a last newline pass."""
    if isinstance(value, str) and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield ValidationError(f"does not match {pattern}")


_Validator: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _pattern, "x-kubernetes-list-type": _unique_keys}
)


@dataclass(frozen=True)
class ObjectSchema:
    """The schema of one kind, compiled once.

    Args:
        schema: the OpenAPI v3 schema of the whole object.
    """

    schema: Schema
    _validator: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        validator = _Validator(_with_ranges(self.schema), format_checker=_FORMATS)
        object.__setattr__(self, "_validator", validator)

    def prune(self, stored: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The object without the fields that the schema does not know, and the paths of those fields.

        `metadata` is left alone: its fields are those of every Kubernetes object.
        """
        dropped: list[str] = []
        pruned: dict[str, Any] = _prune(stored, self.schema, "", dropped)
        if "metadata" in stored:
            pruned["metadata"] = stored["metadata"]
        return pruned, [path for path in dropped if not path.startswith("metadata.")]

    def default(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The object with the defaults of the schema where a field of a present object is missing."""
        completed: dict[str, Any] = _default(stored, self.schema)
        return completed

    def validate(self, stored: Mapping[str, Any]) -> list[Cause]:
        """Every field that breaks the schema; empty for a valid object."""
        return [cause for error in self._validator.iter_errors(stored) for cause in causes_of(error)]


def _with_ranges(schema: Any) -> Any:
    """The schema with the ranges that the integer formats imply."""
    if isinstance(schema, list):
        return [_with_ranges(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    result = {name: _with_ranges(value) for name, value in schema.items()}
    if result.get("type") == "integer" and (limit := _RANGES.get(str(result.get("format")))):
        result.setdefault("minimum", -limit)
        result.setdefault("maximum", limit - 1)
    return result


def _prune(value: Any, schema: Schema, path: str, dropped: list[str]) -> Any:
    if isinstance(value, list) and "items" in schema:
        return [_prune(each, schema["items"], f"{path}[{i}]", dropped) for i, each in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    properties = schema.get("properties", {})
    other = schema.get("additionalProperties")
    result = {}
    for name, inner in value.items():
        inner_path = f"{path}.{name}" if path else name
        if name in properties:
            result[name] = _prune(inner, properties[name], inner_path, dropped)
        elif isinstance(other, Mapping):
            result[name] = _prune(inner, other, inner_path, dropped)
        elif schema.get(_PRESERVE):
            result[name] = inner
        else:
            dropped.append(inner_path)
    return result


def _default(value: Any, schema: Schema) -> Any:
    if isinstance(value, list) and "items" in schema:
        return [_default(each, schema["items"]) for each in value]
    if not isinstance(value, Mapping):
        return value
    properties = schema.get("properties", {})
    other = schema.get("additionalProperties")
    result = {}
    for name, inner in value.items():
        inner_schema = properties.get(name, other if isinstance(other, Mapping) else {})
        result[name] = _default(inner, inner_schema)
    for name, inner_schema in properties.items():
        # A null in a field that may not be null stands for nothing, and gives way to the default.
        if "default" in inner_schema and result.get(name) is None:
            result[name] = _default(inner_schema["default"], inner_schema)
    return result

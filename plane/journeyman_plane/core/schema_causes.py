"""What a broken schema is called in the words of Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import ValidationError

from journeyman_plane.errors import Cause

_LIMITS = {
    "minimum": "should be greater than or equal to",
    "maximum": "should be less than or equal to",
    "minLength": "should be at least this many chars long:",
    "maxLength": "may not be more than this many chars long:",
    "minItems": "should have at least this many items:",
    "maxItems": "must have at most this many items:",
}


def causes_of(error: ValidationError) -> Iterator[Cause]:
    """The causes that one error of the jsonschema library stands for."""
    path = field_path(error.absolute_path)
    required: Any = error.validator_value
    instance: Any = error.instance
    if error.validator == "required":
        for name in required:
            if name not in instance:
                yield Cause(f"{path}.{name}" if path else name, "FieldValueRequired", "Required value")
        return
    describe = _DESCRIPTIONS.get(str(error.validator), _invalid)
    reason, message = describe(path, error)
    yield Cause(path or "<root>", reason, message)


def field_path(parts: Any) -> str:
    """`spec.tools[0]` from the parts of a path."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _enum(_: str, error: ValidationError) -> tuple[str, str]:
    values: Any = error.validator_value
    supported = ", ".join(json.dumps(value) for value in values)
    return (
        "FieldValueNotSupported",
        f"Unsupported value: {_shown(error.instance)}: supported values: {supported}",
    )


def _type(path: str, error: ValidationError) -> tuple[str, str]:
    names = {bool: "boolean", dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    found = names.get(type(error.instance), "null")
    return "FieldValueTypeInvalid", (
        f'Invalid value: "{found}": {path} in body must be of type {error.validator_value}: "{found}"'
    )


def _duplicate(_: str, error: ValidationError) -> tuple[str, str]:
    return "FieldValueDuplicate", error.message


def _invalid(path: str, error: ValidationError) -> tuple[str, str]:
    if error.validator == "pattern":
        rule = f"should match '{error.validator_value}'"
    elif error.validator == "format":
        rule = f"must be of type {error.validator_value}"
    elif error.validator in _LIMITS:
        rule = f"{_LIMITS[str(error.validator)]} {error.validator_value}"
    else:
        rule = error.message
    return "FieldValueInvalid", f"Invalid value: {_shown(error.instance)}: {path} in body {rule}"


def _shown(value: Any) -> str:
    """The value as JSON, cut so that a whole transcript does not end up in a message."""
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."  # noqa: PLR2004  # a line or two


_DESCRIPTIONS: dict[str, Callable[[str, ValidationError], tuple[str, str]]] = {
    "enum": _enum,
    "type": _type,
    "duplicate": _duplicate,
}

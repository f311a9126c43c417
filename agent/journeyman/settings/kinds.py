"""The kinds of values that several settings have: how they are spelled, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from journeyman.core.gates.marks import marks_from
from journeyman.errors import ConfigError

NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
LABEL_NAME = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)


def _split(value: object) -> object:
    """Environment variables spell a list `a,b`."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _namespaces(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not NAMESPACE.fullmatch(name):
            raise ValueError(f"{name} is no name of a namespace")
    if len(set(names)) < len(names):
        raise ValueError("each namespace is named once")
    return names


def _patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        if pattern.count("/") != 1:
            raise ValueError(f"{pattern} is no pattern like default/coder or default/*")
    return patterns


def _folders(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    for folder in folders:
        if not folder.is_absolute() or ".." in folder.parts:
            raise ValueError(f"{folder} is no absolute path of a folder")
    return folders


def _absolute(path: Path) -> Path:
    """`load_settings` makes paths absolute; only an empty one is left as it was."""
    if not path.is_absolute():
        raise ValueError("must be the path of a file or folder")
    return path


def _marks(table: dict[str, Any]) -> dict[str, Any]:
    try:
        marks_from(table, "gates")
    except ConfigError as error:
        raise ValueError(error.message) from error
    return table


def _split_labels(value: object) -> object:
    """Flags and environment variables spell labels `key=value,key=value`."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    pairs = [str(part).partition("=") for part in parts if part]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("must be key=value pairs")
    return {key.strip(): label.strip() for key, _, label in pairs}


def _labels(labels: dict[str, str]) -> dict[str, str]:
    for key, value in labels.items():
        if not (LABEL_NAME.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
            raise ValueError(f"{key}={value} is no Kubernetes label (63 characters of letters, digits, -_.)")
    return labels


Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
Words = Annotated[tuple[str, ...], BeforeValidator(_split)]
Namespaces = Annotated[tuple[str, ...], AfterValidator(_namespaces), BeforeValidator(_split)]
ServicePatterns = Annotated[tuple[str, ...], AfterValidator(_patterns), BeforeValidator(_split)]
Folders = Annotated[tuple[Path, ...], AfterValidator(_folders), BeforeValidator(_split)]
Labels = Annotated[dict[str, str], AfterValidator(_labels), BeforeValidator(_split_labels)]
Marks = Annotated[dict[str, Any], AfterValidator(_marks)]

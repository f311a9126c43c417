"""Objects as a `Table` (meta.k8s.io/v1): what `kubectl get` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from datetime import datetime
from typing import Any

from journeyman_plane.core.jsonpath import first
from journeyman_plane.model.resource import Column, Resource

JsonObject = dict[str, Any]
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def table(
    resource: Resource, objects: Iterable[JsonObject], now: datetime, *, include: str = "Metadata"
) -> JsonObject:
    """A table of the objects, without list metadata.

    Args:
        resource: whose columns to use.
        objects: one row each.
        now: ages are counted up to here.
        include: what each row carries: Metadata, Object or None, as the `includeObject` parameter says.
    """
    columns = _columns(resource)
    rows = [
        {"cells": [_cell(column, stored, now) for column in columns]} | _carried(stored, include)
        for stored in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [_definition(column, resource) for column in columns],
        "rows": rows,
    }


def human_duration(seconds: float) -> str:
    """A duration as kubectl prints ages (apimachinery's `duration.HumanDuration`)."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    steps: tuple[tuple[int, Callable[[], str]], ...] = (
        (2 * _MINUTE, lambda: f"{max(whole, 0)}s"),
        (10 * _MINUTE, lambda: _pair(whole, _MINUTE, "m", 1, "s")),
        (3 * _HOUR, lambda: f"{whole // _MINUTE}m"),
        (8 * _HOUR, lambda: _pair(whole, _HOUR, "h", _MINUTE, "m")),
        (2 * _DAY, lambda: f"{whole // _HOUR}h"),
        (8 * _DAY, lambda: _pair(whole, _DAY, "d", _HOUR, "h")),
        (2 * _YEAR, lambda: f"{whole // _DAY}d"),
        (8 * _YEAR, lambda: _pair(whole, _YEAR, "y", _DAY, "d")),
    )
    for limit, text in steps:
        if whole < limit:
            return text()
    return f"{whole // _YEAR}y"


def _pair(whole: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = whole % large // small
    return f"{whole // large}{large_unit}" + (f"{rest}{small_unit}" if rest else "")


def _columns(resource: Resource) -> tuple[Column, ...]:
    if resource.columns[0].name == "Name" or not resource.custom:
        return resource.columns
    return (Column("Name", "string", ".metadata.name"), *resource.columns)


def _type(column: Column, resource: Resource) -> str:
    """Ages and counts arrive as text: the server has worked them out.  Custom kinds still say date."""
    if column.type == "count" or (column.type == "date" and not resource.custom):
        return "string"
    return column.type


def _definition(column: Column, resource: Resource) -> JsonObject:
    return {
        "name": column.name,
        "type": _type(column, resource),
        "format": "name" if column.path == ".metadata.name" else "",
        "description": column.description,
        "priority": column.priority,
    }


def _cell(column: Column, stored: Mapping[str, Any], now: datetime) -> Any:
    value = first(column.path, stored)
    if column.type == "count":
        return len(value) if isinstance(value, Sized) else 0
    if value is None:
        return None
    if column.type == "date":
        try:
            return human_duration((now - datetime.fromisoformat(value)).total_seconds())
        except (TypeError, ValueError):
            return "<unknown>"
    return value


def _carried(stored: JsonObject, include: str) -> JsonObject:
    if include == "None":
        return {}
    if include == "Object":
        return {"object": stored}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return {"object": partial | {"metadata": stored["metadata"]}}

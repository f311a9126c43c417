"""Label selectors and field selectors, as query parameters spell them.

The grammar is that of Kubernetes (apimachinery's `labels` package): requirements are joined by commas;
each is `key`, `!key`, `key=value`, `key==value`, `key!=value`, `key in (a,b)` or `key notin (a,b)`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from journeyman_plane.core.jsonpath import first
from journeyman_plane.errors import RequestError

Labels = Mapping[str, str]
_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s+\(([^()]*)\)$")
_EQUALITY = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([\w.-]*)$")
_EXISTENCE = re.compile(rf"^(!?)\s*({_KEY})$")
# Commas inside of parentheses separate values, not requirements.
_SEPARATOR = re.compile(r",(?![^()]*\))")


def label_selector(text: str) -> Callable[[Labels], bool]:
    """A predicate over the labels of an object.  Raises RequestError (400) for one that is no selector."""
    requirements = [_requirement(part.strip()) for part in _SEPARATOR.split(text)] if text.strip() else []
    return lambda labels: all(requirement(labels) for requirement in requirements)


def _requirement(text: str) -> Callable[[Labels], bool]:
    if found := _SET.match(text):
        key, operator, listed = found.groups()
        values = {value.strip() for value in listed.split(",")}
        # An object without the key is not in any set, as with != in Kubernetes.
        return lambda labels: (labels.get(key) in values) == (operator == "in")
    if found := _EQUALITY.match(text):
        key, operator, value = found.groups()
        return lambda labels: (labels.get(key) == value) == (operator != "!=")
    if found := _EXISTENCE.match(text):
        absent, key = found.groups()
        return lambda labels: (key in labels) != bool(absent)
    raise RequestError(f"unable to parse requirement: {text!r}", status=400, reason="BadRequest")


def field_selector(text: str, allowed: frozenset[str]) -> Callable[[Mapping[str, Any]], bool]:
    """A predicate over objects, from `path=value` and `path!=value`.

    Args:
        text: the query parameter.
        allowed: the fields that may be named, beside metadata.name and metadata.namespace.

    Raises:
        RequestError: 400 for a field that cannot be selected by, as Kubernetes answers.
    """
    known = allowed | {"metadata.name", "metadata.namespace"}
    requirements: list[tuple[str, bool, str]] = []
    for part in filter(None, text.split(",")):
        path, operator, value = re.match(r"^([^=!]*)(==|=|!=)?(.*)$", part).groups()  # type: ignore[union-attr]
        if path not in known or operator is None:
            raise RequestError(f"field label not supported: {path}", status=400, reason="BadRequest")
        requirements.append((path, operator != "!=", value))
    return lambda stored: all(
        ((first(f".{path}", stored) or "") == value) == wanted for path, wanted, value in requirements
    )

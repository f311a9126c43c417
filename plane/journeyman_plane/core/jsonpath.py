"""The subset of JSONPath that printer columns use.

`.a.b`, `.a['b.c']`, `.a[0]` and `.a[?(@.type=="Ready")].b`; see the JSONPath page of the Kubernetes
documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

_STEP = re.compile(
    r"""\.(?P<name>[\w-]+)
      | \['(?P<quoted>[^']+)'\]
      | \[(?P<index>\d+)\]
      | \[\?\(@\.(?P<field>[\w.-]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]""",
    re.VERBOSE,
)


@cache
def _steps(path: str) -> tuple[re.Match[str], ...]:
    steps = tuple(_STEP.finditer(path))
    if "".join(step.group() for step in steps) != path:
        raise ValueError(f"{path!r} is no JSONPath that we read")
    return steps


def first(path: str, value: Any) -> Any:
    """The first value at the path, or None.  Raises ValueError for a path outside of the subset."""
    found = [value]
    for step in _steps(path):
        found = [inner for outer in found for inner in _apply(step, outer)]
    return found[0] if found else None


def _apply(step: re.Match[str], value: Any) -> Iterator[Any]:
    name = step["name"] or step["quoted"]
    if isinstance(value, Mapping):
        if name in value:
            yield value[name]
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if step["index"]:
            yield from value[int(step["index"]) :][:1]
        elif step["field"]:
            yield from (each for each in value if first(f".{step['field']}", each) == step["value"])

"""The JSONPath of printer columns."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman_plane.core.jsonpath import first

VALUE = {"a": {"b-c": 1, "d.e": 2}, "list": [{"t": "x", "v": 3}, {"t": "y", "v": 4}]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b-c", 1),
        (".a['d.e']", 2),
        (".list[1].v", 4),
        ('.list[?(@.t=="y")].v', 4),
        (".list[?(@.t=='z')].v", None),
        (".list[9].v", None),
        (".a.missing.deeper", None),
        (".list.v", None),
        (".a.b-c.deeper", None),
    ],
)
def test_paths(path: str, found: Any) -> None:
    """A path finds its first value, and nothing where a step leads nowhere."""
    assert first(path, VALUE) == found


@pytest.mark.parametrize("path", ["a", ".a[*]", "..a", ".a[", ".a[?(@.b>1)]"])
def test_paths_outside_of_the_subset(path: str) -> None:
    """What we do not read is an error, not an empty cell."""
    with pytest.raises(ValueError, match="no JSONPath that we read"):
        first(path, VALUE)

"""Tables and ages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from journeyman_plane.core.table import human_duration, table
from journeyman_plane.model.builtins import CONFIGMAPS
from journeyman_plane.model.resource import Column, Resource

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (2 * MINUTE + 5, "2m5s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (7 * DAY + 5 * HOUR, "7d5h"),
        (8 * DAY + HOUR, "8d"),
        (700 * DAY, "700d"),
        (2 * 365 * DAY + DAY, "2y1d"),
        (9 * 365 * DAY, "9y"),
    ],
)
def test_durations_read_like_those_of_kubectl(seconds: float, text: str) -> None:
    """Ages are rounded as apimachinery's HumanDuration rounds them."""
    assert human_duration(seconds) == text


def resource(*columns: Column) -> Resource:
    return Resource("g", "v1", "things", "thing", "Thing", True, {}, columns=columns)


def test_cells_follow_the_columns() -> None:
    """A row has the name first, then each column: dates as ages, missing values empty, odd dates named."""
    columns = (
        Column("Seen", "date", ".seen"),
        Column("Odd", "date", ".odd"),
        Column("Size", "integer", ".size"),
        Column("Ready", "string", '.conditions[?(@.type=="Ready")].status'),
    )
    thing = {
        "metadata": {"name": "one"},
        "seen": "2026-01-01T11:59:00Z",
        "odd": "yesterday",
        "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}],
    }
    made = table(resource(*columns), [thing], NOW)
    assert made["rows"][0]["cells"] == ["one", "60s", "<unknown>", None, "True"]
    assert [each["type"] for each in made["columnDefinitions"]] == [
        "string",
        "date",
        "date",
        "integer",
        "string",
    ]


def test_counts_are_of_members() -> None:
    """The Data column of a ConfigMap counts its keys, and is 0 without any."""
    maps = [
        {"metadata": {"name": name}} | more
        for name, more in (("a", {"data": {"x": "1", "y": "2"}}), ("b", {}))
    ]
    assert [row["cells"][1] for row in table(CONFIGMAPS, maps, NOW)["rows"]] == [2, 0]


@pytest.mark.parametrize(
    ("include", "kind"), [("Metadata", "PartialObjectMetadata"), ("Object", "Thing"), ("None", None)]
)
def test_rows_carry_what_is_asked_for(include: str, kind: str | None) -> None:
    """`includeObject` decides between the metadata, the whole object and nothing."""
    thing = {"kind": "Thing", "metadata": {"name": "one"}}
    (row,) = table(resource(Column("Name", "string", ".metadata.name")), [thing], NOW, include=include)[
        "rows"
    ]
    assert row.get("object", {}).get("kind") == kind

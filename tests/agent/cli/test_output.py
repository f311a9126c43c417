"""Tables and JSON that programs can read."""

from __future__ import annotations

import json

import pytest

from journeyman.cli.output import print_json, print_table


def test_columns_line_up_and_nothing_is_a_hyphen(capsys: pytest.CaptureFixture[str]) -> None:
    """Each row is one line, whatever is in its cells."""
    print_table(
        ("name", "value"),
        [("a", None), ("longer", ["x", "y"]), ("b", {"k": "v"}), ("c", "two\nlines"), ("d", True), ("e", 0)],
    )
    assert capsys.readouterr().out.splitlines() == [
        "NAME    VALUE",
        "a       -",
        "longer  x,y",
        "b       k=v",
        "c       two lines",
        "d       true",
        "e       0",
    ]


def test_a_table_without_rows_has_a_head(capsys: pytest.CaptureFixture[str]) -> None:
    """None found is an answer."""
    print_table(("name",), [])
    assert capsys.readouterr().out == "NAME\n"


def test_json_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed as UTF-8, indented, and ends in a line feed."""
    print_json({"name": "Zoë", "list": [1]})
    out = capsys.readouterr().out
    assert json.loads(out) == {"name": "Zoë", "list": [1]}
    assert "Zoë" in out
    assert out.endswith("}\n")

"""How commands print: JSON for programs, tables for people; rich is imported only for a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Prints JSON that people can read, too."""
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Prints rows under upper-case column names.

    On a terminal the table is folded into its width; elsewhere each row is one line that grep and awk can
    read, with columns two spaces apart and no cell cut.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    titles = [column.upper() for column in columns]
    if sys.stdout.isatty():
        _print_rich(titles, cells)
        return
    widths = [max(len(line[column]) for line in [titles, *cells]) for column in range(len(titles))]
    for line in [titles, *cells]:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print("  ".join(padded).rstrip())


def _cell(value: object) -> str:
    """A cell is one line; nothing is shown as a hyphen, so that columns can be counted."""
    if isinstance(value, Mapping):
        value = ",".join(f"{key}={inner}" for key, inner in value.items())
    elif isinstance(value, list | tuple):
        value = ",".join(str(inner) for inner in value)
    elif isinstance(value, bool):
        value = str(value).lower()
    text = " ".join(str("" if value is None else value).split())
    return text or "-"


def _print_rich(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    for row in rows:
        # Text, not markup: brackets in a value are no tags.
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)

"""Sizes that keep the house readable: design.md §1."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
LONGEST_FILE = 400
LONGEST_FUNCTION = 60
PRODUCT = sorted(path for room in ("agent", "updater", "plane") for path in (REPOSITORY / room).rglob("*.py"))


@pytest.mark.parametrize("path", PRODUCT, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_files_and_functions_stay_small(path: Path) -> None:
    """No file of the product exceeds 400 lines, no function 60."""
    text = path.read_text()
    assert text.count("\n") <= LONGEST_FILE, f"{path} is too long: split it by what it does"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{path}:{node.lineno} {node.name} has {length} lines"


def test_broad_excepts_are_rare() -> None:
    """`except Exception` stands only at a port's wrap and a loop's top: at most 12 in the product."""
    found = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path in PRODUCT
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
    ]
    assert len(found) <= 12, "\n".join(found)

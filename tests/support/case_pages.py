"""Pages of docs/ that name a test for each case: what they name, and whether it is there."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def named_tests(text: str) -> list[tuple[str, str]]:
    """File and name of each test that the text names in backticks."""
    return sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)))


@functools.cache
def source_of(path: str) -> str:
    return (REPOSITORY / path).read_text()


def check_named_test(path: str, name: str) -> None:
    """A test that a page names is a function of that file, and one that is collected."""
    assert name.startswith("test_")
    assert name in _functions(path), f"{path} has no {name}"


@functools.cache
def _functions(path: str) -> frozenset[str]:
    tree = ast.parse(source_of(path))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))

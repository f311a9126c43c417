"""Exit codes are an interface, so code and docs agree."""

from __future__ import annotations

import re
from pathlib import Path

from journeyman import errors
from journeyman.errors import JourneymanError
from journeyman_updater.contract import ExitCode

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "exit-codes.md").read_text()
ROWS = {(name, int(code)) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCS, re.MULTILINE)}


def test_the_docs_list_every_error_with_its_exit_code() -> None:
    """Each error of the tree and each code of the agent is documented, and nothing else."""
    tree = {
        (name, kind.exit_code)
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, JourneymanError)
    }
    assert tree | {(code.name, code.value) for code in ExitCode} == ROWS


def test_the_module_docstring_draws_the_tree_as_it_is() -> None:
    """Codes in the drawing are those of the classes."""
    drawn = dict(re.findall(r"(\w+Error) +\((\d+)\)", errors.__doc__ or ""))
    for name, code in drawn.items():
        assert getattr(errors, name).exit_code == int(code), name
    assert (
        len(drawn) == len([row for row in ROWS if row[0].endswith("Error")]) - 1
    )  # The root has none drawn.

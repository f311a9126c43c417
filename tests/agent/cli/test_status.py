"""`journeyman status`: everything for programs, and for people what they look for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from journeyman.cli.status import show

MODEL = {
    "name": "coder", "phase": "ready", "reason": "", "service": "default/coder", "runtime": "native",
    "contextTokens": 4096, "memory": {"estimatedBytes": 3 * 10**9, "allocatedBytes": 4 * 10**9},
    "tokensPerSecond": 41.3, "restarts": 7, "lastWords": [],
}  # fmt: skip


def table_of(capsys: pytest.CaptureFixture[str], model: dict[str, Any]) -> list[list[str]]:
    show({"nodeName": "desk", "models": [model]}, as_json=False)
    head, _, rows = capsys.readouterr().out.partition("\nmodels\n")
    assert "desk" in head
    return [row.split("  ") for row in rows.splitlines()]


def test_a_model_takes_one_line_that_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    """It has what people look for, and its memory as one amount."""
    (row,) = table_of(capsys, MODEL)[1:]
    assert [cell.strip() for cell in row if cell.strip()] == [
        *("coder", "ready", "-", "default/coder", "native", "4096", "4 GB", "41.3"),
    ]


@pytest.mark.parametrize(("estimated", "told"), [(3 * 10**9, "3 GB"), (None, "-")])
def test_before_it_has_run_its_memory_is_the_estimate(
    capsys: pytest.CaptureFixture[str], estimated: int | None, told: str
) -> None:
    """Nothing is shown of what nobody knows."""
    (row,) = table_of(capsys, {**MODEL, "memory": {"estimatedBytes": estimated, "allocatedBytes": None}})[1:]
    assert told in [cell.strip() for cell in row]


def test_programs_get_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON leaves nothing out."""
    show({"nodeName": "desk", "models": [MODEL]}, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"nodeName": "desk", "models": [MODEL]}

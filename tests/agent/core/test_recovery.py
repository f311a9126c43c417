"""The recovery table, row by row."""

from __future__ import annotations

import pytest

from journeyman.core.recovery import MAX_ATTEMPTS, Recovery, recover


@pytest.mark.parametrize(
    ("alive", "exit_known", "has_result", "attempt", "expected"),
    [
        (True, False, False, 1, Recovery.ADOPT),
        (True, False, True, 1, Recovery.ADOPT),  # It is about to end; its shim says how.
        (False, True, True, 1, Recovery.DELIVER),
        (False, False, True, 1, Recovery.DELIVER),  # A result is written whole or not at all.
        (False, True, False, 1, Recovery.RUN_AGAIN),
        (False, True, False, MAX_ATTEMPTS, Recovery.FAIL),
        (False, False, False, 1, Recovery.HAND_BACK),
    ],
)
def test_each_row_of_the_table(
    *, alive: bool, exit_known: bool, has_result: bool, attempt: int, expected: Recovery
) -> None:
    """What becomes of a freeform worker depends on these four facts alone."""
    decided = recover(alive=alive, exit_known=exit_known, has_result=has_result, attempt=attempt)
    assert decided is expected

"""How an interrupted update goes on."""

from __future__ import annotations

import pytest

from journeyman_updater.core.recovery import Recovery, recover
from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.release import Slot, VersionId, parse_sha256
from journeyman_updater.model.state import Status

SLOT = Slot(VersionId("1.0.0"), parse_sha256("ab" * 32), "n")


def record(step: Step) -> Record:
    return Record(1, "boot", 1, "", "1.0.0", 0, SLOT.sha256, step)


@pytest.mark.parametrize(
    ("on_trial", "last", "starts", "other_runs", "todo"),
    [
        (True, Step.ACTIVATE, 0, False, Recovery.ASK_AGAIN),
        (True, Step.ACTIVATE, 1, False, Recovery.WATCH),
        (True, Step.COMMIT, 1, False, Recovery.WATCH),
        (True, Step.ROLLBACK, 3, False, Recovery.WATCH),
        (False, Step.COMMIT, 0, False, Recovery.FINISH_COMMIT),
        (False, Step.ROLLBACK, 0, False, Recovery.FINISH_ROLLBACK),
        (False, Step.COMMITTED, 0, True, Recovery.FINISH_ROLLBACK),
        (False, Step.COMMITTED, 0, False, Recovery.NOTHING),
        (False, Step.STAGE, 0, False, Recovery.NOTHING),
        (False, None, 0, False, Recovery.NOTHING),
    ],
)
def test_the_state_document_decides_and_the_journal_completes(
    last: Step | None, starts: int, todo: Recovery, *, on_trial: bool, other_runs: bool
) -> None:
    """An open trial is judged or asked for again, and a decision that stands is finished."""
    status = Status(trial=SLOT if on_trial else None)
    assert recover(status, record(last) if last else None, starts=starts, other_runs=other_runs) is todo

"""What an updater that starts finds unfinished, and how it goes on."""

from __future__ import annotations

from enum import Enum, auto

from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.state import Status


class Recovery(Enum):
    """The one thing to do before anything else."""

    NOTHING = auto()
    """All is as the state document says."""
    WATCH = auto()
    """A trial has been started: judge it."""
    ASK_AGAIN = auto()
    """A trial was decided, and nothing shows that it was ever started."""
    FINISH_COMMIT = auto()
    """The commit is in the state document, but its end is not in the journal."""
    FINISH_ROLLBACK = auto()
    """The rollback is in the state document, but the active release does not run, or it is not recorded."""


def recover(status: Status, last: Record | None, *, starts: int, other_runs: bool) -> Recovery:
    """Decides from what survived.

    Args:
        status: of the state document.
        last: the last record of the journal.
        starts: how often the guard has started the open trial, in this boot and others.
        other_runs: whether an agent runs and says that it is another release than the active one.
    """
    if status.trial is not None:
        return Recovery.WATCH if starts else Recovery.ASK_AGAIN
    step = last.step if last else None
    if step == Step.ROLLBACK or other_runs:
        return Recovery.FINISH_ROLLBACK
    return Recovery.FINISH_COMMIT if step == Step.COMMIT else Recovery.NOTHING

"""COMMIT: a proven, healthy trial becomes the active release."""

from __future__ import annotations

from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.tree import is_valid
from journeyman_updater.steps.watch import proof, token_of


def commit(tools: Tools, trial: Slot) -> None:
    """Makes a trial permanent, after a last proof that it is what runs.

    Raises:
        RestartError: RestartUnproven; nothing was changed.
    """
    running = proof(tools, trial)
    is_new = tools.manager.started_since(token_of(tools, trial))
    if running is None or not is_new or not is_valid(tools.files, tools.tree(trial), trial.sha256):
        raise RestartError(
            Reason.RESTART_UNPROVEN,
            f"{trial.version.spelled} reports as healthy, and it cannot be proven that it runs",
            "It is judged again at the next run of the updater.",
        )
    tools.records.append(Step.COMMIT, trial, nonce=trial.nonce, sequence=trial.sequence, pid=running.pid)
    status = tools.records.load().status
    tools.records.save_status(
        active=trial,
        previous=status.active,
        trial=None,
        sequence=max(status.sequence, trial.sequence),
        undone=status.others_undone(trial.sha256),
    )
    finish_commit(tools, trial)


def finish_commit(tools: Tools, active: Slot) -> None:
    """Records the end of a commit that the state document already holds; `flush` follows with the tidying."""
    tools.records.note(Step.COMMITTED, active)

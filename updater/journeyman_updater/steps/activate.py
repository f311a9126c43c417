"""ACTIVATE: the release is put on trial and the service manager is asked for a new start."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace

from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.unit import changes_of, keep_unit, take_unit

ASKS = 3
"""How often the start of one trial is asked for.  One that still cannot be shown is undone."""


def put_on_trial(tools: Tools, slot: Slot) -> Slot:
    """Decides for a staged release, durably.  From here on the guard tries it three times and goes back.

    Returns:
        The release with the nonce of this trial.
    """
    trial = replace(slot, nonce=tools.new_nonce())
    active = tools.records.load().status.active
    if active is not None and changes_of(tools, trial):
        keep_unit(tools, active)
    _note(tools, trial)
    _forget_attempts(tools)
    tools.records.save_status(trial=trial)
    return trial


def start(tools: Tools, trial: Slot) -> None:
    """Asks for the start of a trial, under its own unit: nothing else may be started by that one.

    Raises:
        RestartError: the service manager refuses, or shows no start.
    """
    take_unit(tools, trial)
    tools.manager.restart()


def start_again(tools: Tools, trial: Slot) -> None:
    """As `start`, for a trial whose start was asked for before; only a start after this one proves it."""
    _note(tools, trial)
    start(tools, trial)


def asks(tools: Tools, trial: Slot) -> int:
    """How often the start of that trial was asked for."""
    history = tools.records.history()
    return sum(item.step == Step.ACTIVATE and item.detail.get("nonce") == trial.nonce for item in history)


def _note(tools: Tools, trial: Slot) -> None:
    unit = changes_of(tools, trial)
    detail = {"unit": unit} if unit else {}
    token = asdict(tools.manager.token())
    tools.records.append(Step.ACTIVATE, trial, nonce=trial.nonce, token=token, **detail)


def _forget_attempts(tools: Tools) -> None:
    """Lets the guard begin its file anew.

    That is tidiness, as its lines name their trial.  The folder is the agent's: the file is removed and not
    emptied, as it might be another name of one that the agent may not touch.
    """
    with contextlib.suppress(OSError):
        tools.files.unlink(tools.root.attempts_file)

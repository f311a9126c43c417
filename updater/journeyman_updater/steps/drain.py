"""DRAIN: the running agent takes nothing new, and what cannot be handed over ends first."""

from __future__ import annotations

from journeyman_updater.errors import Reason
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot
from journeyman_updater.steps.base import Tools


def drain(tools: Tools, slot: Slot) -> bool:
    """Asks the agent to pause, and waits for the work that another agent could not adopt.

    Undone by `resume`.

    Returns:
        Whether it had ended before the deadline; if not, it is re-queued by the agent's own recovery.
    """
    # The pause does not outlive the boot, so its record need not, either.
    tools.records.note(Step.DRAIN, slot)
    tools.files.write(tools.root.pause_file, b"update\n", mode=0o644)
    deadline = tools.seconds() + tools.limits.drain
    while True:
        _, report = tools.running_report()
        if report is None or not report.busy:
            return True
        if tools.seconds() >= deadline:
            tools.records.note(Step.DRAIN, slot, reason=Reason.DRAIN_TIMEOUT)
            return False
        tools.clock.wait(tools.limits.poll)


def resume(tools: Tools) -> None:
    """Lets the agent take work again."""
    tools.forget(tools.root.pause_file)

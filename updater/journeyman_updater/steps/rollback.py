"""ROLLBACK: the trial ends and the active release runs again; it needs no cluster."""

from __future__ import annotations

from journeyman_updater.core.health import Health, Verdict
from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot
from journeyman_updater.model.state import Rejection
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.tree import is_valid
from journeyman_updater.steps.unit import have_other_units, take_unit
from journeyman_updater.steps.watch import look, proof


def rollback(tools: Tools, trial: Slot, verdict: Verdict) -> None:
    """Ends a trial; the release is rejected for good if the evidence came from itself.

    Raises:
        RestartError: RollbackFailed; the trial is over all the same.
    """
    status = tools.records.load().status
    reason = verdict.reason or Reason.UNHEALTHY
    _record(tools, trial, reason, verdict)
    if verdict.rejects:
        rejection = Rejection(trial.version.spelled, trial.sha256, reason, verdict.evidence)
        status = status.allowing(trial.sha256).rejecting(rejection)
    else:
        status = status.undoing(trial, reason, tools.clock.boot_id(), tools.clock.monotonic_ns())
    tools.records.save_status(trial=None, rejected=status.rejected, undone=status.undone)
    finish_rollback(tools, trial)


def cancel(tools: Tools) -> str:
    """Ends an open trial on a host that is uninstalled: nothing is restarted, and nothing is held against it.

    Returns:
        The release that was on trial, or an empty string.
    """
    trial = tools.records.load().status.trial
    if trial is None:
        return ""
    verdict = Verdict(Health.FAILED, Reason.ROLLED_BACK, "it was uninstalled")
    _record(tools, trial, Reason.ROLLED_BACK, verdict)
    tools.records.save_status(trial=None)
    tools.records.append(Step.ROLLED_BACK, trial, is_proven=False)
    return trial.version.spelled


def leave(tools: Tools, former: Slot) -> None:
    """Rejects a release that a person has gone back from, or the next request would bring it right back."""
    verdict = Verdict(Health.FAILED, Reason.ROLLED_BACK, "a person went back from it", rejects=True)
    _record(tools, former, Reason.ROLLED_BACK, verdict)
    rejection = Rejection(former.version.spelled, former.sha256, Reason.ROLLED_BACK, verdict.evidence)
    tools.records.save_status(rejected=tools.records.load().status.rejecting(rejection).rejected)
    tools.records.append(Step.ROLLED_BACK, former, is_proven=True)


def _record(tools: Tools, slot: Slot, reason: Reason, verdict: Verdict) -> None:
    detail = {"nonce": slot.nonce, "reason": reason, "evidence": verdict.evidence}
    tools.records.append(Step.ROLLBACK, slot, rejects=verdict.rejects, **detail)


def finish_rollback(tools: Tools, trial: Slot) -> None:
    """Lets the active release run under its own unit, and records the end.

    The guard may have gone back by itself when the trial's attempts were over; then nothing is restarted,
    unless that start was by the unit of the trial.

    Raises:
        RestartError: RollbackFailed, or what the service manager refuses.
    """
    active = tools.records.load().status.active
    if active is not None:
        take_unit(tools, active)
    is_other_unit = active is not None and have_other_units(tools, trial, active)
    if is_other_unit or not look(tools, trial).other_runs or _says_otherwise(tools, active):
        _restart(tools, None if is_other_unit else active)
    is_proven = active is not None and _wait_for(tools, active)
    tools.records.note(Step.ROLLED_BACK, trial, is_proven=is_proven)
    if active is not None and not is_proven:
        raise RestartError(
            Reason.ROLLBACK_FAILED,
            f"{active.version.spelled} was asked to start and does not report as running",
            "Look at the agent's log, and at what the guard wrote to it.",
        )


def _restart(tools: Tools, enough: Slot | None) -> None:
    """A manager that can show no start has failed, unless that release is seen to run all the same."""
    try:
        tools.manager.restart()
    except RestartError:
        if enough is None or proof(tools, enough) is None:
            raise


def other_runs(tools: Tools) -> bool:
    """Whether an agent runs that says it is not the active release, although that one could run."""
    active = tools.records.load().status.active
    return _says_otherwise(tools, active)


def _says_otherwise(tools: Tools, active: Slot | None) -> bool:
    _, report = tools.running_report()
    if report is None or active is None or report.sha == active.sha256:
        return False
    # While the active release is damaged the guard runs another one, and a restart would not change that.
    return is_valid(tools.files, tools.tree(active), active.sha256)


def _wait_for(tools: Tools, active: Slot) -> bool:
    deadline = tools.seconds() + tools.limits.proof
    while proof(tools, active) is None:
        if tools.seconds() >= deadline:
            return False
        tools.clock.wait(tools.limits.poll)
    return True

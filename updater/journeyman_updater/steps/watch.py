"""WATCH: looks at the trial until it is judged."""

from __future__ import annotations

from journeyman_updater.contract import ProcessIdentity
from journeyman_updater.core.attempts import ATTEMPTS, charged, is_exhausted
from journeyman_updater.core.health import Health, Observation, Verdict, Watch, next_look, observe
from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import Slot
from journeyman_updater.ports import RestartToken
from journeyman_updater.steps.base import Tools


def watch(tools: Tools, trial: Slot) -> Verdict:
    """Folds looks into a verdict that is not WAIT.  It changes nothing, so there is nothing to undo."""
    state = Watch.starting(tools.seconds())
    while True:
        state, verdict = observe(state, look(tools, trial), tools.limits.health)
        if verdict.health is not Health.WAIT:
            return verdict
        limits = tools.limits
        tools.clock.wait(next_look(state, tools.seconds(), limits.health, limits.poll))


def look(tools: Tools, trial: Slot) -> Observation:
    """One look.  A process counts as the trial's only if the guard has written that it starts it."""
    attempts, boot = tools.records.attempts(), tools.clock.boot_id()
    running, report = tools.running_report()
    started = {item.pid for item in attempts if item.nonce == trial.nonce and item.boot == boot}
    is_trial = running is not None and running.pid in started
    if report is not None and (report.nonce, report.sha) != (trial.nonce, trial.sha256):
        report = None
    return Observation(
        at=tools.seconds(),
        running=running if is_trial else None,
        other_runs=running is not None and not is_trial,
        report=report if is_trial else None,
        is_exhausted=is_exhausted(attempts, trial.nonce, boot),
        spent_all_boots=charged(attempts, trial.nonce, boot) < ATTEMPTS,
        # No request is made for a heartbeat that arrives.
        is_plane_reachable=report is None or not report.beat_error or tools.plane.is_reachable(),
    )


def token_of(tools: Tools, trial: Slot) -> RestartToken:
    """What was known before the trial's restart; the service manager has to show something else by now.

    Raises:
        RestartError: RestartUnproven; the journal does not say, so nothing can be proven.
    """
    for record in reversed(tools.records.history()):
        if record.step == Step.ACTIVATE and record.detail.get("nonce") == trial.nonce:
            token = record.detail["token"]
            before = ProcessIdentity(**token["before"]) if token["before"] else None
            return RestartToken(before, token["sign"])
    raise RestartError(
        Reason.RESTART_UNPROVEN,
        f"the journal does not say what ran before {trial.version.spelled}",
        "Roll back with `journeyman update rollback`, or ask for the release again.",
    )


def proof(tools: Tools, slot: Slot) -> ProcessIdentity | None:
    """The process that is proven to run that release, or None: when in doubt there is no proof.

    The service manager's own word, the same boot, pid and raw start time in the agent's report, the nonce
    that only this start was given, and the SHA-256 that the guard handed over must agree.
    """
    running, report = tools.running_report()
    if running is None or report is None or running.boot_id != tools.clock.boot_id():
        return None
    return running if (report.nonce, report.sha) == (slot.nonce, slot.sha256) else None

"""One run of the updater: recovery first, then at most one request.  Acts are in steps/, choices in core/.

    FETCH -> STAGE -> DRAIN -> ACTIVATE -> WATCH -> COMMIT
                                             └────> ROLLBACK

A cut at any point leaves a journal and a state document from which the next run goes on.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from journeyman_updater.core.allowances import allowance_for
from journeyman_updater.core.health import Health, Verdict
from journeyman_updater.core.rebuild import rebuild
from journeyman_updater.core.recovery import Recovery, recover
from journeyman_updater.core.repeats import is_over
from journeyman_updater.core.requests import Grant, decide
from journeyman_updater.errors import (
    HostError,
    PostponedError,
    Reason,
    RequestError,
    RestartError,
    UpdaterError,
)
from journeyman_updater.model.journal import ASIDE, Record, Step
from journeyman_updater.model.release import Sha256, Slot, UpdateRequest, VersionId
from journeyman_updater.model.state import Rejection
from journeyman_updater.steps.activate import ASKS, asks, put_on_trial, start, start_again
from journeyman_updater.steps.base import Tools
from journeyman_updater.steps.commit import commit, finish_commit
from journeyman_updater.steps.drain import drain, resume
from journeyman_updater.steps.fetch import ask_for_promise, fetch
from journeyman_updater.steps.permit import Permit
from journeyman_updater.steps.retire import retire
from journeyman_updater.steps.rollback import finish_rollback, leave, other_runs, rollback
from journeyman_updater.steps.stage import is_staged, stage
from journeyman_updater.steps.tree import installed
from journeyman_updater.steps.unit import ask_for_unit, changes_of, have_other_units
from journeyman_updater.steps.watch import watch


class Ending(StrEnum):
    """How a run of the updater ended."""

    NOTHING = "nothing"
    NOT_NEEDED = "not_needed"
    LATER = "later"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled_back"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Outcome:
    """What one run did.

    Attributes:
        ending: see `Ending`.
        slot: the release that it was about, or None.
        reason: a reason code, or None.
        message: one line for people.
        advice: what to do about it, or an empty string.
    """

    ending: Ending
    slot: Slot | None = None
    reason: Reason | None = None
    message: str = ""
    advice: str = ""


class Transaction:
    """The updater for one state root.  Whoever calls it holds the lock.

    Args:
        tools: the ports.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    def recover(self) -> Outcome:
        """Finishes what an earlier run left, and judges a trial that is open."""
        with _named_errors():
            self._heal_state()
            records = self._tools.records
            status, history = records.load().status, records.history()
            nonce = status.trial.nonce if status.trial else ""
            starts = sum(item.event == "start" and item.nonce == nonce for item in records.attempts())
            last = next((record for record in reversed(history) if record.step not in ASIDE), None)
            todo = recover(status, last, starts=starts, other_runs=other_runs(self._tools))
            if todo is not Recovery.NOTHING:
                # What a killed run renamed need not be on the platter, and all that follows rests on it.
                self._tools.files.fsync_directory(self._tools.root.path)
            try:
                return self._finish(todo, status.trial, last)
            except UpdaterError as error:
                records.flush()
                return _refusal(error, status.trial)

    def apply(self, request: UpdateRequest, permit: Permit | None = None) -> Outcome:
        """Brings a release here and tries it; `recover` has been called before.

        Args:
            request: what is asked for.
            permit: what it waits for; nothing if it is left out.
        """
        permit = permit or Permit()
        slot = Slot(request.version, request.sha256)
        self._obey_allowance(request)
        try:
            grant = decide(request, self._tools.records.load())
        except RequestError as error:
            self.tidy()
            return _refusal(error, slot)
        if grant is Grant.LATER:
            return Outcome(Ending.LATER, slot)
        if grant is Grant.NOT_NEEDED:
            self.tidy()
            return Outcome(Ending.NOT_NEEDED, slot)
        try:
            with _named_errors():
                self.tidy(keep=slot)
                permit.start()
                staged = self._prepare(request, permit)
                permit.activate()
                return self._try(staged)
        except PostponedError as error:
            return Outcome(Ending.LATER, slot, error.reason, error.message, error.advice)
        except UpdaterError as error:
            return self._refused(slot, error)

    def _obey_allowance(self, request: UpdateRequest) -> None:
        """Holds nothing against the release any more, if its node says so."""
        records = self._tools.records
        document = records.load()
        found = allowance_for(request, document.status, records.history(), self._tools.clock.now())
        if found is not None:
            detail = {"sha256": found.sha256, "asked": request.allow, "reason": found.reason}
            records.append(Step.ALLOW, None, **detail)
            records.save(replace(document, status=document.status.allowing(found.sha256)))

    def forget_undone(self, wanted: UpdateRequest | None) -> None:
        """Holds against a release no more that the host has failed it, once nobody asks for it."""
        status = self._tools.records.load().status
        kept = tuple(item for item in status.undone if wanted is not None and item.sha256 == wanted.sha256)
        if kept != status.undone:
            self._tools.records.save_status(undone=kept)

    def roll_back(self) -> Outcome:
        """Ends an open trial by a person's word, or puts the previous release back on trial.

        What was left is rejected until `allow`, as the request for it may still stand.
        """
        status = self._tools.records.load().status
        if status.trial is not None:
            verdict = Verdict(Health.FAILED, Reason.ROLLED_BACK, "a person asked for it", rejects=True)
            return self._undo(status.trial, verdict)
        previous = status.previous
        if previous is None or not is_staged(self._tools, previous):
            error = RequestError(
                Reason.BAD_REQUEST, "no previous release lies here", "Ask for one by version."
            )
            return _refusal(error, previous)
        outcome = self._try(previous)
        if outcome.ending is Ending.COMMITTED and status.active is not None:
            leave(self._tools, status.active)
        return outcome

    def tidy(self, *, keep: Slot | None = None) -> None:
        """Ends the pause of the agent and deletes what nothing needs, but for what is here of a release."""
        resume(self._tools)
        retire(self._tools, keep=keep)
        self._tools.records.flush()

    def _heal_state(self) -> None:
        """Makes state.json anew if it is damaged, lost or a link; that it cannot be read is no damage."""
        tools = self._tools
        path = tools.root.state_file
        history = tools.records.history()
        try:
            tools.records.load()
            if tools.files.size(path) is not None or not history:
                return
        except ValueError:
            # Kept for people to look at; what protects is in the journal, too.
            tools.files.write(path.with_name(path.name + ".damaged"), tools.files.read(path))
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        tools.records.save(rebuild(history, installed(tools.files, tools.root.versions)))

    def _finish(self, todo: Recovery, trial: Slot | None, last: Record | None) -> Outcome:
        if trial is not None:
            if todo is Recovery.ASK_AGAIN or changes_of(self._tools, trial):
                return self._ask_again(trial)
            return self._judge(trial)
        if todo is Recovery.NOTHING or last is None:
            return Outcome(Ending.NOTHING)
        slot = Slot(VersionId(last.release), Sha256(last.sha), str(last.detail.get("nonce", "")))
        if todo is Recovery.FINISH_ROLLBACK:
            finish_rollback(self._tools, slot)
        else:
            finish_commit(self._tools, slot)
        self.tidy(keep=self._to_be_tried_again(slot))
        ending = Ending.ROLLED_BACK if todo is Recovery.FINISH_ROLLBACK else Ending.COMMITTED
        return Outcome(ending, slot)

    def _prepare(self, request: UpdateRequest, permit: Permit) -> Slot:
        """Everything that is done before anything stops."""
        promise = ask_for_promise(self._tools, request)
        if not is_staged(self._tools, promise.slot):
            permit.fetch()
            stage(self._tools, promise.slot, fetch(self._tools, request, promise))
        ask_for_unit(self._tools, promise.slot)
        return promise.slot

    def _try(self, slot: Slot) -> Outcome:
        drain(self._tools, slot)
        trial = put_on_trial(self._tools, slot)
        return self._start(trial, start)

    def _ask_again(self, trial: Slot) -> Outcome:
        if asks(self._tools, trial) >= ASKS:
            return self._undo(trial, _unproven(f"none of {ASKS} starts that were asked for could be proven"))
        return self._start(trial, start_again)

    def _start(self, trial: Slot, ask: Callable[[Tools, Slot], None]) -> Outcome:
        """Has the trial started, and judges it.

        A start that is refused is asked for again by later runs, as the host may be mended; under a unit of
        its own the trial is undone at once, as nothing shows that this unit can be started at all.
        """
        active = self._tools.records.load().status.active
        try:
            ask(self._tools, trial)
        except RestartError as error:
            if active is None or not have_other_units(self._tools, trial, active):
                raise
            return self._undo(trial, _unproven(error.message, error.reason))
        return self._judge(trial)

    def _judge(self, trial: Slot) -> Outcome:
        verdict = watch(self._tools, trial)
        if verdict.health is Health.HEALTHY:
            try:
                commit(self._tools, trial)
            except RestartError:
                # It runs and says that it is well, so one more start costs little and may prove it.
                return self._ask_again(trial)
            self.tidy()
            return Outcome(Ending.COMMITTED, trial)
        if verdict.health is Health.FAILED:
            return self._undo(trial, verdict)
        self._tools.records.append_once(Step.INCONCLUSIVE, trial, reason=verdict.reason)
        return Outcome(Ending.INCONCLUSIVE, trial, verdict.reason, verdict.evidence)

    def _undo(self, trial: Slot, verdict: Verdict) -> Outcome:
        rollback(self._tools, trial, verdict)
        self.tidy(keep=self._to_be_tried_again(trial))
        return Outcome(Ending.ROLLED_BACK, trial, verdict.reason, verdict.evidence)

    def _to_be_tried_again(self, slot: Slot) -> Slot | None:
        """That release, if what is here of it saves its next try a transfer."""
        document = self._tools.records.load()
        undone = document.status.undone_of(slot.sha256)
        follows = document.spec.source == "agentrelease"
        return slot if follows and undone is not None and not is_over(undone) else None

    def _refused(self, slot: Slot, error: UpdaterError) -> Outcome:
        # A disk that takes no record, full or read-only, must not hide the reason.
        with contextlib.suppress(OSError):
            self._note_refusal(slot, error)
        return _refusal(error, slot)

    def _note_refusal(self, slot: Slot, error: UpdaterError) -> None:
        records = self._tools.records
        status = records.load().status
        records.append_once(Step.REFUSED, slot, reason=error.reason, evidence=error.message)
        if error.rejects and status.trial is None:
            rejection = Rejection(slot.version.spelled, slot.sha256, error.reason, error.message)
            records.save_status(rejected=status.rejecting(rejection).rejected)
        self.tidy(keep=slot if error.is_transient else None)


def _unproven(evidence: str, reason: Reason = Reason.RESTART_UNPROVEN) -> Verdict:
    """No evidence against the release itself."""
    return Verdict(Health.FAILED, reason, evidence)


def _refusal(error: UpdaterError, slot: Slot | None) -> Outcome:
    return Outcome(Ending.REFUSED, slot, error.reason, error.message, error.advice)


_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Gives errors of the file system their reason codes."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise HostError(
                Reason.INSUFFICIENT_DISK,
                f"the disk is full: {error}",
                "Free space; the update goes on by itself.",
            ) from error
        raise HostError(
            Reason.NOT_WRITABLE, f"the state root cannot be used: {error}", "Look at its mount and its owner."
        ) from error

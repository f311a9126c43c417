"""Composes the updater of one state root on this host, and gives people the verbs to see and steer it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from journeyman_updater.adapters.agent_files import AgentFiles
from journeyman_updater.adapters.artifact_facts import request_for
from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.adapters.update_news import UpdateNews
from journeyman_updater.composition import compose
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.leftovers import PATTERN, sweep
from journeyman_updater.core.postponement import turn_seconds
from journeyman_updater.core.repeats import is_over, seconds_left
from journeyman_updater.core.requests import Grant, decide
from journeyman_updater.core.window import Window, parse_window
from journeyman_updater.errors import Reason, RequestError, SourceError, UpdaterError
from journeyman_updater.forecast import Forecast, Prospect, forecast
from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.release import Sha256, Slot, UpdateRequest, VersionId, parse_sha256
from journeyman_updater.model.state import StateDocument, Undone
from journeyman_updater.ports import Clock
from journeyman_updater.renewal import renew_if_due
from journeyman_updater.settings import Settings
from journeyman_updater.steps.permit import PlanePermit
from journeyman_updater.steps.rollback import cancel
from journeyman_updater.transaction import Ending, Outcome, Transaction

# What callers of the verbs need to speak of them.
__all__ = [
    "Ending",
    "Forecast",
    "Outcome",
    "Prospect",
    "Slot",
    "SourceError",
    "UpdateRequest",
    "Updater",
    "UpdaterError",
    "VersionId",
    "Window",
    "compose",
    "open_updater",
    "parse_sha256",
    "parse_window",
]


class Updater:
    """All that can be asked of the updater; each mutation holds the one lock.

    Args:
        root: the state root.
        settings: intervals and deadlines.
        clock: time.
        to_local: the rules of the local time zone.
    """

    def __init__(
        self,
        root: StateRoot,
        settings: Settings,
        clock: Clock | None = None,
        to_local: Callable[[datetime], datetime] = lambda moment: moment.astimezone(),
    ) -> None:
        clock = clock or SystemClock()
        api = NodeApi(root.node_file, timeout_seconds=settings.api_seconds)
        self._root = root
        self._settings = settings
        self._to_local = to_local
        self._spread_seconds = settings.start_spread_seconds
        self._news = UpdateNews(root, clock, lambda told: api.tell(told, clock.now()))
        self._tools = compose(root, settings, self._news.fetched, clock, self._news.noted)
        self._locks = FlockLocks()

    def run_once(self) -> Outcome:
        """What the timer and the wake-up call: recovery, then the request of the control plane, if any.

        Raises:
            UpdaterError: another updater is at work, or the control plane cannot be asked.
        """
        outcome, turn = self._follow(self._spread_seconds)
        if turn:
            # Without the lock: people at this host need not wait for its turn.
            self._tools.clock.wait(turn)
            outcome, _ = self._follow(0.0)
        told = self._told(outcome)
        renew_if_due(self._tools, self._settings)
        return told

    def first_run(self) -> Outcome:
        """All of `run_once` but for what is asked for: how a new updater is tried before it is used."""
        try:
            with self._locks.hold(self._root.update_lock):
                transaction = Transaction(self._tools)
                found = transaction.recover()
                transaction.tidy()
        except UpdaterError as error:
            return Outcome(Ending.LATER, None, error.reason, error.message, error.advice)
        if self._follows_the_plane():
            # That it does not answer says nothing about who asks.
            with contextlib.suppress(UpdaterError):
                self._tools.plane.wanted()
        return found

    def _follow(self, spread_seconds: float) -> tuple[Outcome, float]:
        """One pass over what the control plane wants; if it is not yet this host's turn, for how long."""
        with self._locks.hold(self._root.update_lock):
            sweep(path for folder in (self._root.path, self._root.keys) for path in folder.glob(PATTERN))
            transaction = Transaction(self._tools)
            found = transaction.recover()
            if found.ending is not Ending.NOTHING or not self._follows_the_plane():
                return found, 0.0
            request = self._tools.plane.wanted()
            self._news.checked()
            transaction.forget_undone(request)
            if request is None:
                transaction.tidy()
                return found, 0.0
            turn = self._turn_seconds(request, spread_seconds) if spread_seconds else 0.0
            if turn:
                return found, turn
            return transaction.apply(request, self._permit(request)), 0.0

    def _turn_seconds(self, request: UpdateRequest, spread_seconds: float) -> float:
        """How long this host lets others go first; nothing once it has begun, or if nothing would begin."""
        records = self._tools.records
        try:
            is_granted = decide(request, records.load()) is Grant.GRANTED
            self._permit(request).start()
        except UpdaterError:
            return 0.0
        if not is_granted or any(record.sha == request.sha256 for record in records.history()):
            return 0.0
        name = AgentFiles(self._root.node_file).node().name
        return turn_seconds(name, request.sha256, spread_seconds=spread_seconds)

    def _permit(self, request: UpdateRequest) -> PlanePermit:
        return PlanePermit(self._tools, request, self._to_local)

    def _told(self, outcome: Outcome) -> Outcome:
        """Lets people know, through the agent or without it, what the journal does not say."""
        slot, reason = outcome.slot, outcome.reason
        if slot is not None and reason is not None and outcome.ending is Ending.LATER:
            self._news.postponed(slot, reason, outcome.message)
        # That a release was tried and undone says more than that it is refused since then.
        if slot is not None and outcome.ending is Ending.REFUSED and reason not in {None, Reason.DENYLISTED}:
            self._news.refused(slot, str(reason), outcome.message)
        self._news.ended()
        return outcome

    def check(self) -> Forecast:
        """Asks the control plane now, and says what `run_once` would do; changes nothing.

        Raises:
            SourceError: the control plane cannot be asked.
            UpdaterError: what it answers is none.
        """
        if not self._follows_the_plane():
            return Forecast(
                Prospect.OFF,
                message="this host does not follow its control plane",
                advice="Set updates_source to agentrelease to let it.",
            )
        request = self._tools.plane.wanted()
        if request is None:
            return Forecast(Prospect.NOTHING, message="the control plane asks for no update of this node")
        found = forecast(self._tools, request, self._permit(request))
        return replace(found, turn_seconds=self._turn_seconds(request, self._spread_seconds))

    def apply(self, request: UpdateRequest) -> Outcome:
        """Recovery, then a request made at this host.

        Raises:
            UpdaterError: another updater is at work.
        """
        with self._locks.hold(self._root.update_lock):
            transaction = Transaction(self._tools)
            found = transaction.recover()
            if found.ending is not Ending.INCONCLUSIVE:
                found = transaction.apply(request)
        return self._told(found)

    def apply_file(self, artifact: Path) -> Outcome:
        """As `apply`, with a release that lies on this host; needs no network.

        Raises:
            UpdaterError: the file is no release, or another updater is at work.
        """
        return self.apply(request_for(artifact))

    def rollback(self) -> Outcome:
        """Ends an open trial, or puts the previous release on trial.

        Raises:
            UpdaterError: another updater is at work, or the old release cannot be brought back.
        """
        with self._locks.hold(self._root.update_lock):
            outcome = Transaction(self._tools).roll_back()
        return self._told(outcome)

    def document(self) -> StateDocument:
        """The state document; needs no lock and no network.

        Raises:
            ValueError: it is damaged.
        """
        return self._tools.records.load()

    def history(self) -> list[Record]:
        """The journal, oldest first; needs no lock and no network."""
        return self._tools.records.history()

    def cancel_trial(self) -> str:
        """Ends an open trial without a restart, as its agent has been stopped; the caller holds the lock.

        Returns:
            The release that was on trial, or an empty string.

        Raises:
            ValueError: the state document is damaged.
        """
        return cancel(self._tools)

    def pin(self, version: VersionId | None) -> None:
        """Pins this host to a version, or lets it move again.

        Raises:
            UpdaterError: another updater is at work.
        """

        def change(document: StateDocument) -> StateDocument:
            return replace(document, spec=replace(document.spec, pin=version.canonical if version else None))

        self._change(Step.PIN, change, pin=version.canonical if version else "")

    def set_window(self, window: Window | None) -> None:
        """Lets updates of the control plane start within a maintenance window only, or always.

        Raises:
            UpdaterError: another updater is at work.
        """
        spelled = window.spelled if window else None

        def change(document: StateDocument) -> StateDocument:
            return replace(document, spec=replace(document.spec, window=spelled))

        self._change(Step.WINDOW, change, window=spelled or "")

    def follow(self, source: str) -> bool:
        """Lets this host follow the AgentReleases of its control plane (`agentrelease`), or not (`off`).

        Returns:
            Whether that changes anything.

        Raises:
            UpdaterError: another updater is at work.
            ValueError: the state document is damaged.
        """
        if self.document().spec.source == source:
            return False
        self._change(
            Step.SOURCE,
            lambda document: replace(document, spec=replace(document.spec, source=source)),
            source=source,
        )
        return True

    def opening(self, window: Window) -> datetime | None:
        """When that window is open next, in local time; this very minute if it is open now."""
        return window.next_opening(self._tools.clock.now(), self._to_local)

    def last_check(self) -> datetime | None:
        """When the control plane was asked last, or None if it was not since the boot."""
        try:
            return self._to_local(datetime.fromtimestamp(self._root.check_file.stat().st_mtime, UTC))
        except FileNotFoundError:
            return None

    def next_try(self, undone: Undone) -> float | None:
        """In how many seconds an undone release may be tried again, or None if only a person lets it be."""
        if is_over(undone):
            return None
        clock, pause = self._tools.clock, self._tools.limits.retry_pause
        return seconds_left(undone, clock.boot_id(), clock.monotonic_ns(), pause_seconds=pause)

    def allow(self, sha256: Sha256) -> None:
        """Lets a release be tried again that was rejected, or undone in each of its tries.

        Raises:
            RequestError: BadRequest; it was not rejected.
            UpdaterError: another updater is at work.
        """
        status = self.document().status
        if not status.has_rejected(sha256) and status.undone_of(sha256) is None:
            raise RequestError(
                Reason.BAD_REQUEST,
                f"{sha256[:12]} was neither rejected nor undone here",
                "`journeyman update status` lists what was.",
            )

        def change(document: StateDocument) -> StateDocument:
            return replace(document, status=document.status.allowing(sha256))

        self._change(Step.ALLOW, change, sha256=sha256)

    def _change(self, step: Step, change: Callable[[StateDocument], StateDocument], **detail: str) -> None:
        with self._locks.hold(self._root.update_lock):
            document = self._tools.records.load()
            self._tools.records.append(step, None, **detail)
            self._tools.records.save(change(document))

    def _follows_the_plane(self) -> bool:
        return self._tools.records.load().spec.source == "agentrelease"


def open_updater(root: StateRoot) -> Updater:
    """The updater of a state root, with the settings that lie there.

    Raises:
        ValueError: a setting is wrong.
    """
    return Updater(root, Settings.load(root.updater_settings))

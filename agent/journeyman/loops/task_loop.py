"""Looks at the tasks of this node, and claims, hands back or cancels what `core/task_plan.py` says.

It leaves to `task_feed.py` how the tasks are known; a look costs no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from journeyman.core.task_patches import claim_patch, hand_back_patch
from journeyman.core.task_plan import Cancel, Claim, HandBack, Step, Take, plan
from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Clock, Collection, ControlPlane, JsonObject
from journeyman.settings import Settings
from journeyman.waiting import happens_within

log = structlog.get_logger(__name__)


class Feed(Protocol):
    """What is known of the tasks of one namespace."""

    namespace: str

    def tasks(self) -> list[AgenticTask] | None:
        """The tasks that concern this node; None while nothing is known."""
        ...

    def note(self, item: JsonObject) -> None:
        """Takes in what a write of ours has returned."""
        ...

    def doubt(self) -> None:
        """Asks for a new list, as what is known was contradicted."""
        ...


class Runner(Protocol):
    """Where claimed tasks run."""

    def claims(self) -> list[Claim]:
        """The claims whose workers run here."""
        ...

    def can_start(self, task: AgenticTask) -> bool:
        """Whether what the task needs on this host is there now."""
        ...

    async def begin(self, task: AgenticTask, claim: Claim) -> None:
        """Starts the task's worker, or ends the task at once if it cannot run here."""
        ...

    async def cancel(self, claim: Claim) -> None:
        """Stops the task's worker and forgets it; nothing is written."""
        ...


class TaskLoop:
    """Takes work, and lets go of it.

    Args:
        plane: the control plane.
        clock: time.
        settings: the number of slots, the pause between two looks.
        node_name: who we are.
        feeds: what is known of the tasks, one for each namespace that we serve.
        runner: where claimed tasks run.
        undelivered: the claims whose endings are on their way.
        held: whether the node takes no new work at this moment.
        saves_power: whether the host is on battery.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        settings: Settings,
        node_name: str,
        feeds: Sequence[Feed],
        runner: Runner,
        undelivered: Callable[[], Iterable[Claim]],
        held: Callable[[], bool],
        saves_power: Callable[[], bool],
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._settings = settings
        self._node_name = node_name
        self._feeds = {feed.namespace: feed for feed in feeds}
        self._runner = runner
        self._undelivered = undelivered
        self._held = held
        self._saves_power = saves_power
        self._poke = asyncio.Event()
        self._ticked_at = clock.monotonic()
        self._pause = settings.task_poll_seconds

    def look_soon(self) -> None:
        """Asks for a look now, as something that decides about tasks has changed."""
        self._poke.set()

    def is_ticking(self) -> bool:
        """Whether the last step is no longer ago than the pause after it and one step can take."""
        settings = self._settings
        step = 4 * settings.request_timeout_seconds + settings.worker_stop_grace_seconds
        return self._clock.monotonic() - self._ticked_at <= self._pause + step

    async def run(self) -> None:
        """Looks for ever.  An API that does not answer ends neither this loop nor any work."""
        while True:
            self._poke.clear()
            try:
                await self.look()
            except UnreachableError as error:
                log.warning("look_broken_off", error=str(error))
            self._ticked_at = self._clock.monotonic()
            self._pause = self._pause_seconds()
            await happens_within(self._poke, self._pause, self._clock)

    async def look(self) -> None:
        """Decides about all that is known, and does it.  Raises UnreachableError: the rest has to wait."""
        known = {name: tasks for name, feed in self._feeds.items() if (tasks := feed.tasks()) is not None}
        running = self._runner.claims()
        steps = plan(
            [task for tasks in known.values() for task in tasks],
            # Where nothing is known, nothing is known to be lost.
            running=[claim for claim in running if claim.namespace in known],
            undelivered=self._undelivered(),
            node_name=self._node_name,
            free_slots=self._settings.max_concurrent_tasks - len(running),
            held=self._held(),
            can_start=self._runner.can_start,
        )
        for step in steps:
            await self._take_step(step)
            self._ticked_at = self._clock.monotonic()

    async def _take_step(self, step: Step) -> None:
        try:
            match step:
                case Take(task):
                    await self._claim(task)
                case HandBack(task, why):
                    await self._write(task, hand_back_patch(task, why, self._server_time()))
                    log.info("task_handed_back", task=task.reference, why=why)
                case Cancel(claim, why):
                    log.info("task_cancelled", task=claim.name, why=why)
                    await self._runner.cancel(claim)
        except UnreachableError:
            raise
        except ControlPlaneError as error:
            # One task that the control plane will not let us touch keeps us from no other.
            log.warning("task_step_failed", error=str(error))

    async def _claim(self, task: AgenticTask) -> None:
        claimed = await self._write(task, claim_patch(task, self._node_name, self._server_time()))
        claimed_at = claimed.status.claimed_at
        if claimed_at is None or claimed.status.assigned_node != self._node_name:
            raise ConflictError(f"task {task.reference} was claimed and is not ours all the same")
        claim = Claim(task.metadata.namespace, task.metadata.name, task.metadata.uid, claimed_at)
        log.info("task_claimed", task=task.reference)
        await self._runner.begin(claimed, claim)

    async def _write(self, task: AgenticTask, patch: JsonObject) -> AgenticTask:
        """Patches the status, by compare-and-set.  Raises ControlPlaneError."""
        namespace = task.metadata.namespace
        tasks = Collection(AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, namespace)
        try:
            stored = await self._plane.patch(tasks.named(task.metadata.name), patch, subresource="status")
        except (ConflictError, NotFoundError, UnauthorizedError):
            # Somebody else wrote first, or the task is no longer ours to write: what we knew is old.
            self._feeds[namespace].doubt()
            raise
        self._feeds[namespace].note(stored)
        return AgenticTask.from_wire(stored)

    def _pause_seconds(self) -> float:
        settings = self._settings
        on_battery = settings.battery_pause_seconds if self._saves_power() else 0.0
        return max(settings.task_poll_seconds, on_battery)

    def _server_time(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self._plane.clock_offset_seconds())

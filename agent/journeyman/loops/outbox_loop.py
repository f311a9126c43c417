"""Delivers finished tasks: durable before the first attempt, written once, retried until that is settled.

Settled means that the control plane took the ending, or that the task is no longer ours: deleted, or
claimed by somebody else while we could not be heard.  What will never be delivered is set aside, with the
reason, for a person to look at: an ending that the control plane refuses for ever, and one that came after
the claim was lost.

A hand-back needs no place here: a claim without a run is handed back by whoever looks at it next, be it
this agent or the one after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

import structlog
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_not_exception_type,
    wait_random_exponential,
)

from journeyman.core.delivery import Delivery, Ownership, proof, where_it_is
from journeyman.core.task_patches import ending_patch, rejected_ending_patch
from journeyman.core.task_plan import Claim
from journeyman.errors import ControlPlaneError, HostError, InvalidError, NotFoundError
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Clock, Collection, ControlPlane, DeadLetter, JsonObject, ObjectRef, Spool
from journeyman.settings import Settings

log = structlog.get_logger(__name__)


class OutboxLoop:
    """Holds the endings that the control plane has not taken yet.

    Args:
        plane: the control plane.
        clock: time.
        spool: where endings are kept.
        settings: the pauses between attempts.
        node_name: who we are; an ending is written only while the task is assigned to us.
        seen: takes each task as the control plane has just told of it.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        clock: Clock,
        spool: Spool,
        settings: Settings,
        node_name: str,
        seen: Callable[[JsonObject], None],
    ) -> None:
        self._plane = plane
        self._clock = clock
        self._spool = spool
        self._settings = settings
        self._node_name = node_name
        self._seen = seen
        # Endings of one task go out one after the other.
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._waiting: dict[str, Delivery] = {}
        self._new: asyncio.Queue[Delivery] = asyncio.Queue()

    def load(self) -> None:
        """Takes up what an agent before this one could not deliver."""
        for entry_id, value in self._spool.entries():
            try:
                self._accept(Delivery.from_json(value))
            except ValueError as error:
                log.warning("unreadable_delivery_set_aside", entry=entry_id, error=str(error))
                self._put_aside(entry_id, f"it cannot be read: {error}")

    def put(self, delivery: Delivery) -> None:
        """Keeps an ending durably and has it delivered.  Raises HostError if it cannot be kept."""
        self._spool.put(delivery.entry_id, delivery.to_json())
        self._accept(delivery)

    def dead_letters(self) -> list[DeadLetter]:
        """What was set aside."""
        return self._spool.dead_letters()

    def claims(self) -> list[Claim]:
        """The claims whose endings are still on their way; those tasks are not to be touched."""
        return [delivery.claim for delivery in self._waiting.values()]

    async def run(self) -> None:
        """Delivers for ever, each ending on its own, so that one that is refused holds up no other."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._deliver(await self._new.get()))

    async def flush(self, seconds: float) -> None:
        """Gives what is waiting one more moment; what is not delivered then stays on disk."""
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._attempt(each) for each in list(self._waiting.values())))
        except (ControlPlaneError, TimeoutError) as error:
            log.info("outbox_not_empty", entries=len(self._waiting), error=str(error) or "timed out")

    def _accept(self, delivery: Delivery) -> None:
        if delivery.entry_id not in self._waiting:
            self._waiting[delivery.entry_id] = delivery
            self._new.put_nowait(delivery)

    async def _deliver(self, delivery: Delivery) -> None:
        retrying = AsyncRetrying(
            # What is invalid stays invalid; everything else may heal: links, tokens, conflicts.
            retry=retry_if_exception_type(ControlPlaneError) & retry_if_not_exception_type(InvalidError),
            wait=self._pause_seconds,
            sleep=self._clock.sleep,
            reraise=True,
            before_sleep=_log_failure(delivery),
        )
        turn = self._turns.setdefault(delivery.claim.key, asyncio.Lock())
        try:
            async with turn:
                await retrying(self._attempt, delivery)
        except InvalidError as error:
            log.error("ending_refused_for_ever", task=delivery.claim.name, error=str(error))
            self._give_up(delivery, str(error))

    async def _attempt(self, delivery: Delivery) -> None:
        """Writes the ending under a fresh proof of ownership.  Idempotent."""
        if delivery.entry_id not in self._waiting:
            return
        claim = delivery.claim
        ref = Collection(
            AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, claim.namespace
        ).named(claim.name)
        try:
            item = await self._plane.get(ref)
        except NotFoundError:
            self._settle(delivery, "ending_dropped_task_deleted")
            return
        task = AgenticTask.from_wire(item)
        whose = proof(task, delivery, self._node_name)
        if whose is Ownership.OURS:
            item = await self._write(ref, task, delivery)
        self._seen(item)
        if whose is Ownership.LOST:
            log.warning("ending_came_too_late", task=claim.name, now=where_it_is(task))
            self._give_up(delivery, f"it came too late, the claim was lost: {where_it_is(task)}")
        else:
            self._settle(delivery, "ending_delivered")

    async def _write(self, ref: ObjectRef, task: AgenticTask, delivery: Delivery) -> JsonObject:
        """Returns the task as stored.  Raises InvalidError if it cannot be ended in any way."""
        ending = delivery.ending
        try:
            return await self._plane.patch(ref, ending_patch(task, ending), subresource="status")
        except InvalidError as error:
            log.error("ending_refused", task=task.reference, error=str(error))
            refusal = str(error)
        try:
            patch = rejected_ending_patch(task, ending, refusal)
            return await self._plane.patch(ref, patch, subresource="status")
        except InvalidError as error:
            log.error("result_refused", task=task.reference, error=str(error))
        # The task must end all the same, or it would run here for ever; its result stays on our disk.
        patch = rejected_ending_patch(task, ending, refusal, with_result=False)
        stored = await self._plane.patch(ref, patch, subresource="status")
        self._put_aside(delivery.entry_id, f"the control plane refuses the result: {refusal}")
        return stored

    def _settle(self, delivery: Delivery, event: str) -> None:
        try:
            self._spool.remove(delivery.entry_id)
        except HostError as error:
            # Whoever finds it again finds out that it was delivered.
            log.warning("delivered_entry_not_removed", error=str(error))
        self._waiting.pop(delivery.entry_id, None)
        log.info(event, task=delivery.claim.name, verdict=delivery.ending.verdict.value)

    def _give_up(self, delivery: Delivery, why: str) -> None:
        self._put_aside(delivery.entry_id, why)
        self._waiting.pop(delivery.entry_id, None)

    def _put_aside(self, entry_id: str, why: str) -> None:
        try:
            self._spool.set_aside(entry_id, why)
        except HostError as error:
            log.error("entry_not_set_aside", entry=entry_id, error=str(error))

    def _pause_seconds(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after_seconds if isinstance(error, ControlPlaneError) else None
        backoff = wait_random_exponential(
            multiplier=self._settings.outbox_retry_first_seconds,
            max=self._settings.outbox_retry_max_seconds,
        )
        return max(asked or 0.0, backoff(state))


def _log_failure(delivery: Delivery) -> Callable[[RetryCallState], None]:
    def log_failure(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        log.warning("delivery_failed", task=delivery.claim.name, error=str(error))

    return log_failure

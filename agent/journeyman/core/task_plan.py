"""What to do about the tasks on our node, given one list of them: claim, hand back, cancel.

One list answers three questions at once: what is new for us, whether what we run is still ours, and what
an agent before us left claimed without a worker.  Nothing here waits or writes; `loops/task_loop.py` acts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from journeyman.model.agentic_task import AgenticTask, TaskKind, TaskPhase

# Short work first, so that what waits for a verdict is not starved by what produces more of it.
_URGENCY = {TaskKind.REVIEW: 0, TaskKind.VERIFY: 1, TaskKind.ISSUE_FIX: 2}
_CLAIMED = {TaskPhase.RUNNING, TaskPhase.VERIFYING}


@dataclass(frozen=True)
class Claim:
    """A task that this node has claimed, and when: together they are the proof of ownership.

    Attributes:
        namespace: the task's namespace.
        name: the task's name.
        uid: the task's uid, as a deleted task may come again under its name.
        claimed_at: `status.claimedAt` as the server echoed it.
    """

    namespace: str
    name: str
    uid: str
    claimed_at: datetime

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    def holds(self, task: AgenticTask, node_name: str) -> bool:
        """Whether the task is still ours; both times have whole seconds, as the wire has no more."""
        return (
            task.metadata.uid == self.uid
            and task.metadata.deletion_timestamp is None
            and task.status.assigned_node == node_name
            and task.status.claimed_at == self.claimed_at
        )


@dataclass(frozen=True)
class Take:
    """Claim this task and run it."""

    task: AgenticTask


@dataclass(frozen=True)
class HandBack:
    """Make this task Pending again, as it will not run here."""

    task: AgenticTask
    why: str


@dataclass(frozen=True)
class Cancel:
    """Stop this run and write nothing: the task is no longer ours."""

    claim: Claim
    why: str


Step = Take | HandBack | Cancel


def plan(
    tasks: Iterable[AgenticTask],
    *,
    running: Iterable[Claim],
    undelivered: Iterable[Claim],
    node_name: str,
    free_slots: int,
    held: bool,
    can_start: Callable[[AgenticTask], bool],
) -> list[Step]:
    """Decides about every task of one list.

    Args:
        tasks: all tasks of the namespaces that we serve.
        running: what runs here.
        undelivered: what has ended here and is on its way; it settles itself, and nobody else touches it.
        node_name: who we are.
        free_slots: how many more tasks may run.
        held: whether the node takes no new work.
        can_start: whether what the task needs here is there now; one that cannot start stays Scheduled.

    Returns:
        Cancels first, then hand-backs, then claims in the order in which they shall be made.
    """
    listed = {_key(task): task for task in tasks}
    mine = [task for task in listed.values() if task.status.assigned_node == node_name]
    running = list(running)
    known = {claim.key for claim in [*running, *undelivered]}
    cancels = [
        Cancel(claim, "deleted" if claim.key not in listed else "no longer ours")
        for claim in running
        if claim.key not in listed or not claim.holds(listed[claim.key], node_name)
    ]
    lost = [
        HandBack(task, "it was claimed here and has no worker any more")
        for task in mine
        if task.status.phase in _CLAIMED and _key(task) not in known
    ]
    scheduled = [
        task for task in mine if task.status.phase is TaskPhase.SCHEDULED and _key(task) not in known
    ]
    if held:
        return [*cancels, *lost, *(HandBack(task, "the node is draining") for task in scheduled)]
    startable = sorted((task for task in scheduled if can_start(task)), key=_order)
    return [*cancels, *lost, *(Take(task) for task in startable[: max(free_slots, 0)])]


def _key(task: AgenticTask) -> tuple[str, str]:
    return (task.metadata.namespace, task.metadata.name)


def _order(task: AgenticTask) -> tuple[int, datetime, str]:
    created = task.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    return (_URGENCY.get(task.spec.kind, len(_URGENCY)), created, task.metadata.name)

"""Gives pending tasks to nodes, the oldest task first, the first node by name that fits.

Priority is not looked at, as in Foreman.  What happens to a task once a node has it is its agent's
business, and `claim_expiry`'s when the agent falls silent.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from journeyman.model.agent import AgentPersona
from journeyman.model.agentic_task import AgenticTask, FailureReason
from journeyman_plane.core import task_status
from journeyman_plane.core.actions import Chain, PatchStatus
from journeyman_plane.core.bookings import Bookings
from journeyman_plane.core.dependencies import Outlook, judge_dependencies
from journeyman_plane.core.matcher import Requirement, requirement_of
from journeyman_plane.core.world import World


def schedule_tasks(world: World, now: datetime) -> list[Chain]:
    """Returns what one pass over all pending tasks decides.

    A placement is a chain: the node is reserved first, under its version, and the task is assigned only if
    that succeeded.  So two passes upon one stale view cannot both book a node.  If the chain breaks in
    between, the next pass finds the node reserved for a pending task and goes on from there, or clears
    the reservation; reservations for tasks that are gone, finished or elsewhere are cleared as well.

    Args:
        world: the objects.
        now: the time by the plane's clock.
    """
    turn = _Pass(world, now)
    chains = [chain for task in world.pending_tasks() if (chain := turn.decide(task)) is not None]
    return chains + turn.bookings.repairs()


class _Pass:
    def __init__(self, world: World, now: datetime) -> None:
        self._world = world
        self._now = now
        self.bookings = Bookings(world, now)
        self._running = Counter(_persona_key(task) for task in world.tasks_in_flight())

    def decide(self, task: AgenticTask) -> Chain | None:
        judgement = judge_dependencies(task, self._world)
        match judgement.outlook:
            case Outlook.MOOT:
                return _chain("task_skipped", task_status.skipped(task, judgement.dependency, self._now))
            case Outlook.DOOMED:
                message = f"dependency {judgement.dependency} did not reach its target"
                return _chain("task_failed", task_status.failed(task, "UpstreamFailed", message, self._now))
            case Outlook.WAITING:
                return self._wait(task, "WaitingForDependency", f"waits for {judgement.dependency}")
            case Outlook.CLEAR:
                return self._place(task)

    def _place(self, task: AgenticTask) -> Chain | None:
        persona = self._world.persona_of(task)
        if persona is None and task.spec.agent_ref is not None:
            message = f"there is no Agent {_persona_key(task)}"
            reason = FailureReason.AGENT_NOT_FOUND
            return _chain("task_failed", task_status.failed(task, reason.value, message, self._now, reason))
        if persona is not None and self._is_at_its_limit(persona, task):
            return self._wait(task, "AgentBusy", "the Agent runs as many tasks as it may")
        requirement = requirement_of(task, persona)
        node = self.bookings.find(requirement, task.reference)
        if node is None:
            return self._wait(task, *self._why_no_node(requirement))
        self._running[_persona_key(task)] += 1
        assignment = task_status.scheduled(task, node.metadata.name, self._now)
        if requirement.hardware is None:
            return _chain("task_scheduled", assignment)
        return _chain("task_scheduled", self.bookings.book(node, task.reference), assignment)

    def _is_at_its_limit(self, persona: AgentPersona, task: AgenticTask) -> bool:
        limit = persona.spec.max_concurrent_tasks
        return limit is not None and self._running[_persona_key(task)] >= limit

    def _why_no_node(self, requirement: Requirement) -> tuple[str, str]:
        lacking = self.bookings.what_all_lack(requirement)
        if lacking:
            return "NoNodeFits", f"no FleetNode fits; lacking: {', '.join(lacking)}"
        return "NoNodeFree", "no FleetNode that fits is ready and free"

    def _wait(self, task: AgenticTask, reason: str, message: str) -> Chain | None:
        patch = task_status.waiting(task, reason, message, self._now)
        return _chain("task_waits", patch) if patch is not None else None


def _persona_key(task: AgenticTask) -> str:
    reference = task.spec.agent_ref
    return f"{task.metadata.namespace}/{reference.name if reference else ''}"


def _chain(decision: str, *actions: PatchStatus) -> Chain:
    return Chain(decision, actions)

"""The objects that the reconcilers decide upon, typed and indexed, kept up to date change by change.

The world reads JSON and nothing else: where the changes come from is the loop's business.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from journeyman.model.agent import AgentPersona
from journeyman.model.agent_release import AgentRelease
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.fleet_node import HEARTBEAT_STALE_AFTER, FleetNode, FleetNodePhase
from journeyman.model.meta import WireObject
from journeyman.model.resources import AGENT_RELEASES, AGENTIC_TASKS, AGENTS, FLEET_NODES

RESOURCES = (FLEET_NODES, AGENTIC_TASKS, AGENTS, AGENT_RELEASES)
_TYPES: dict[tuple[str, str], type[WireObject]] = {
    (resource.api_version, resource.kind): kind
    for resource, kind in zip(RESOURCES, (FleetNode, AgenticTask, AgentPersona, AgentRelease), strict=True)
}

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class World:
    """FleetNodes and AgentReleases by name; AgenticTasks and Agents by `namespace/name`.

    Args:
        listening_since: when the plane began to hear heartbeats.  While it was down nobody could beat, so
            no silence is counted from before.
    """

    def __init__(self, listening_since: datetime = _LONG_AGO) -> None:
        self.listening_since = listening_since
        self.nodes: dict[str, FleetNode] = {}
        self.tasks: dict[str, AgenticTask] = {}
        self.personas: dict[str, AgentPersona] = {}
        self.releases: dict[str, AgentRelease] = {}
        # Finished tasks pile up; what a pass walks over is only what is still open.
        self._pending: dict[str, AgenticTask] = {}
        self._in_flight: dict[str, AgenticTask] = {}

    def put(self, body: dict[str, Any]) -> bool:
        """Takes in an object as it is now, and says whether that can change any decision.

        Kinds that no reconciler looks at are passed over.

        Raises:
            InvalidError: the object breaks its schema.  It is then treated as if it did not exist.
        """
        kind = _TYPES.get((body.get("apiVersion", ""), body.get("kind", "")))
        if kind is None:
            return False
        before = self._drop(body)
        after = kind.from_wire(body)
        self._keep(after)
        if isinstance(before, FleetNode) and isinstance(after, FleetNode):
            return self._is_news(before, after)
        return True

    def remove(self, body: dict[str, Any]) -> bool:
        """Forgets an object, and says whether it was known."""
        return self._drop(body) is not None

    def silence_of(self, node: FleetNode, now: datetime) -> timedelta:
        """For how long the plane has listened to the node in vain."""
        heard = node.status.last_heartbeat_time or node.metadata.creation_timestamp or _LONG_AGO
        return now - max(heard, self.listening_since)

    def is_lost(self, node: FleetNode, now: datetime) -> bool:
        """Whether the node can be counted out: it took leave, or has been silent for 90 seconds."""
        if node.status.last_heartbeat_time is None:
            return True
        return self.silence_of(node, now) > HEARTBEAT_STALE_AFTER

    def nodes_by_name(self) -> list[FleetNode]:
        """All nodes, in the order in which they are offered work."""
        return [self.nodes[name] for name in sorted(self.nodes)]

    def releases_by_age(self) -> list[AgentRelease]:
        """All releases, the oldest first."""
        return sorted(self.releases.values(), key=_age)

    def pending_tasks(self) -> list[AgenticTask]:
        """The tasks that wait for a node, the oldest first; a new task has no phase yet."""
        waiting = (task for task in self._pending.values() if task.metadata.deletion_timestamp is None)
        return sorted(waiting, key=_age)

    def tasks_in_flight(self) -> list[AgenticTask]:
        """The tasks that some node has, the oldest first."""
        return sorted(self._in_flight.values(), key=_age)

    def persona_of(self, task: AgenticTask) -> AgentPersona | None:
        """The persona that the task names, or None if it names none or there is none of that name."""
        reference = task.spec.agent_ref
        return self.personas.get(f"{task.metadata.namespace}/{reference.name}") if reference else None

    def _is_news(self, before: FleetNode, after: FleetNode) -> bool:
        """Whether the node has said more than that it is still there: most writes of a fleet say just that.

        Free memory changes with every beat, but nobody asks for it while no task waits.  In other phases
        than these a fresh heartbeat is news in itself: it may make the node Ready.
        """
        if after.status.phase not in (FleetNodePhase.READY, FleetNodePhase.DRAINING):
            return True
        if before.status.last_heartbeat_time is None:
            return True
        ignored = {"last_heartbeat_time": None}
        if not self._pending:
            ignored["capability"] = None
        return (
            before.status.model_copy(update=ignored) != after.status.model_copy(update=ignored)
            or before.spec != after.spec
            or before.metadata.labels != after.metadata.labels
            or before.metadata.annotations != after.metadata.annotations
        )

    def _keep(self, item: WireObject) -> None:
        meta = item.metadata
        match item:
            case FleetNode():
                self.nodes[meta.name] = item
            case AgentRelease():
                self.releases[meta.name] = item
            case AgentPersona():
                self.personas[f"{meta.namespace}/{meta.name}"] = item
            case AgenticTask():
                self.tasks[item.reference] = item
                if item.is_in_flight:
                    self._in_flight[item.reference] = item
                elif not item.is_terminal:
                    self._pending[item.reference] = item

    def _drop(self, body: dict[str, Any]) -> WireObject | None:
        name = body["metadata"]["name"]
        reference = f"{body['metadata'].get('namespace', '')}/{name}"
        match body["kind"]:
            case FLEET_NODES.kind:
                return self.nodes.pop(name, None)
            case AGENT_RELEASES.kind:
                return self.releases.pop(name, None)
            case AGENTS.kind:
                return self.personas.pop(reference, None)
            case AGENTIC_TASKS.kind:
                self._pending.pop(reference, None)
                self._in_flight.pop(reference, None)
                return self.tasks.pop(reference, None)
        return None


def _age(item: WireObject) -> tuple[datetime, str, str]:
    meta = item.metadata
    return (meta.creation_timestamp or _LONG_AGO, meta.namespace, meta.name)

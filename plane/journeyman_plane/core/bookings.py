"""Which nodes are free in one pass of the scheduler, and for whom.

A node holds one task at a time.  `currentTask` is the reservation, but the assignment that a task
itself carries counts as well: a reservation may be missing or dead, and both are mended here.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime

from journeyman.model.fleet_node import FleetNode
from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core.actions import Chain, PatchStatus, key_of
from journeyman_plane.core.matcher import Requirement, lasting_mismatch, mismatch
from journeyman_plane.core.world import World


class Bookings:
    """The nodes of one pass.  Each booking is seen by the next question, so no node is given twice."""

    def __init__(self, world: World, now: datetime) -> None:
        self._nodes = world.nodes_by_name()
        self._schedulable = [node for node in self._nodes if node.is_schedulable(now)]
        self._holders = _holders(world)
        self._booked: set[str] = set()
        # A reservation whose task is still to be assigned: the chain broke between node and task.
        self._reserved = {
            node.status.current_task: node for node in self._free_nodes() if self._is_pending(node, world)
        }
        reserved_names = {node.metadata.name for node in self._reserved.values()}
        self._free = {
            node.metadata.name: node
            for node in self._free_nodes()
            if node.metadata.name not in reserved_names
        }
        self._fitting: dict[Requirement, deque[FleetNode]] = {}
        self._lacking: dict[Requirement, tuple[str, ...]] = {}

    def find(self, requirement: Requirement, reference: str) -> FleetNode | None:
        """Returns the node to give to that task: the one reserved for it, else the first free one."""
        if requirement.hardware is None:
            return next((node for node in self._schedulable if not mismatch(requirement, node)), None)
        reserved = self._reserved.get(reference)
        if reserved is not None and not mismatch(requirement, reserved):
            return reserved
        fitting = self._fitting.get(requirement)
        if fitting is None:
            fitting = deque(node for node in self._free.values() if not mismatch(requirement, node))
            self._fitting[requirement] = fitting
        while fitting and fitting[0].metadata.name not in self._free:
            fitting.popleft()
        return fitting[0] if fitting else None

    def book(self, node: FleetNode, reference: str) -> PatchStatus:
        """Takes the node out of the pass and returns its reservation."""
        self._booked.add(node.metadata.name)
        self._free.pop(node.metadata.name, None)
        return _reservation(node, reference)

    def what_all_lack(self, requirement: Requirement) -> tuple[str, ...]:
        """Returns what keeps each node of the fleet from ever being given such a task.

        It is empty where some node fits, be it busy or away, and where there is no node at all.
        """
        lacking = self._lacking.get(requirement)
        if lacking is None:
            reasons = {lasting_mismatch(requirement, node) for node in self._nodes}
            lacking = () if "" in reasons else tuple(sorted(reasons))
            self._lacking[requirement] = lacking
        return lacking

    def repairs(self) -> list[Chain]:
        """Returns a patch for each node, other than those just booked, whose reservation is not true."""
        chains = []
        for node in self._nodes:
            wanted = self._holders.get(node.metadata.name, "")
            if node.metadata.name not in self._booked and node.status.current_task != wanted:
                decision = "reservation_restored" if wanted else "reservation_cleared"
                chains.append(Chain(decision, (_reservation(node, wanted or None),)))
        return chains

    def _free_nodes(self) -> list[FleetNode]:
        return [node for node in self._schedulable if node.metadata.name not in self._holders]

    @staticmethod
    def _is_pending(node: FleetNode, world: World) -> bool:
        task = world.tasks.get(node.status.current_task)
        return task is not None and not task.is_terminal and not task.is_in_flight


def _holders(world: World) -> dict[str, str]:
    """The task that each busy node has; where there are several, the one that the node names itself."""
    holders: dict[str, str] = {}
    for task in world.tasks_in_flight():
        persona = world.persona_of(task)
        node = world.nodes.get(task.status.assigned_node)
        if node is None or (persona is not None and persona.runs_as_job):
            continue
        if node.metadata.name not in holders or node.status.current_task == task.reference:
            holders[node.metadata.name] = task.reference
    return holders


def _reservation(node: FleetNode, reference: str | None) -> PatchStatus:
    return PatchStatus(
        key_of(FLEET_NODES, node.metadata), {"currentTask": reference}, node.metadata.resource_version
    )

"""Whatever happens in whatever order, the scheduler's two promises hold after each pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journeyman.errors import ConflictError, NotFoundError
from journeyman.model.meta import format_time
from journeyman.model.resources import AGENTIC_TASKS, FLEET_NODES, Resource
from journeyman_plane.core.matcher import mismatch, requirement_of
from journeyman_plane.core.scheduler import schedule_tasks
from tests.support.plane_objects import PlaneInMemory

Event = Callable[[PlaneInMemory], None]
NODES = ("a", "b", "c")
TASKS = tuple(f"task-{number}" for number in range(6))
ROLES: tuple[list[str], ...] = ([], ["gpu"])


def _at(act: Callable[[PlaneInMemory, str], None], name: str) -> Event:
    return lambda plane: act(plane, name)


def _finish(plane: PlaneInMemory, name: str) -> None:
    plane.write_status(AGENTIC_TASKS, name, {"phase": "Succeeded", "verdict": "GO"})


def _claim_without_looking(plane: PlaneInMemory, name: str) -> None:
    """As the Go agent claims: no resourceVersion, so it may come after its claim expired."""
    if not plane.task(name).is_terminal:
        plane.write_status(AGENTIC_TASKS, name, {"phase": "Running", "claimedAt": format_time(plane.now)})


def _hand_back(plane: PlaneInMemory, name: str) -> None:
    if plane.task(name).is_in_flight:
        plane.write_status(AGENTIC_TASKS, name, {"phase": "Pending", "assignedNode": None})


def _wipe_reservation(plane: PlaneInMemory, name: str) -> None:
    plane.write_status(FLEET_NODES, name, {"currentTask": None})


def _add_node(name: str, roles: list[str]) -> Event:
    return lambda plane: plane.add_node(name, roles=roles)


def _add_task(name: str, roles: list[str]) -> Event:
    return lambda plane: plane.add_task(name, requiredCapability={"roles": roles})


def _beat(name: str, phase: str) -> Event:
    return lambda plane: plane.beat(name, phase=phase)


def _move(seconds: int) -> Event:
    return lambda plane: plane.clock.move(seconds)


def _delete(resource: Resource, name: str) -> Event:
    return lambda plane: plane.delete(resource, name)


def _settle(plane: PlaneInMemory) -> None:
    plane.settle()


nodes, tasks, roles = st.sampled_from(NODES), st.sampled_from(TASKS), st.sampled_from(ROLES)
events = st.one_of(
    st.builds(_add_node, nodes, roles),
    st.builds(_add_task, tasks, roles),
    st.builds(_beat, nodes, st.sampled_from(["Ready", "Draining"])),
    st.builds(_move, st.sampled_from([1, 45, 91, 601])),
    st.builds(_delete, st.just(FLEET_NODES), nodes),
    st.builds(_delete, st.just(AGENTIC_TASKS), tasks),
    st.builds(_at, st.sampled_from([_finish, _claim_without_looking, _hand_back]), tasks),
    st.builds(_at, st.just(_wipe_reservation), nodes),
    st.just(_settle),
)


def attempt(event: Event, plane: PlaneInMemory) -> None:
    """Events name objects that may not be there; the API then says no and nothing happens."""
    try:
        event(plane)
    except (ConflictError, NotFoundError):
        return


def check_promises(plane: PlaneInMemory) -> None:
    """No node has two tasks, each names the one it has, and nothing waits while a node that fits is free."""
    held = {task.status.assigned_node: task.reference for task in plane.tasks() if task.is_in_flight}
    assert len(held) == sum(task.is_in_flight for task in plane.tasks())
    fleet = [plane.node(name) for name in plane.node_names()]
    assert all(node.status.current_task == held.get(node.metadata.name, "") for node in fleet)
    free = [node for node in fleet if node.is_schedulable(plane.now) and node.metadata.name not in held]
    for task in plane.tasks():
        if not task.is_in_flight and not task.is_terminal:
            assert [node for node in free if not mismatch(requirement_of(task, None), node)] == []


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(events, min_size=1, max_size=40))
def test_no_task_is_on_two_nodes_and_none_waits_beside_a_free_node(history: list[Event]) -> None:
    """After any history, one settling brings the fleet to a state in which both promises hold."""
    plane = PlaneInMemory()
    try:
        for event in history:
            attempt(event, plane)
        plane.settle()
        check_promises(plane)
    finally:
        plane.store.close()


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(events, max_size=20), st.lists(events, max_size=5), st.permutations(range(2)))
def test_stale_passes_in_any_order_break_no_promise(
    before: list[Event], between: list[Event], order: list[int]
) -> None:
    """Two passes decide on views of different age and are carried out in either order, events in between."""
    plane = PlaneInMemory()
    try:
        for event in before:
            attempt(event, plane)
        decided = [plane.decide(schedule_tasks)]
        for event in between:
            attempt(event, plane)
        decided.append(plane.decide(schedule_tasks))
        for index in order:
            plane.carry_out(decided[index])
        plane.settle()
        check_promises(plane)
    finally:
        plane.store.close()

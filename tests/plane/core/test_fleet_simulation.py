"""Whole fleets on a fake clock: the agents are simulated, plane and store are real."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from journeyman.model.agentic_task import AgenticTask, TaskPhase
from journeyman.model.meta import format_time
from journeyman.model.resources import AGENTIC_TASKS
from tests.support.plane_objects import PlaneInMemory

TASK_TIME = timedelta(seconds=20)


class SimulatedAgents:
    """Agents that beat every 30 s, claim what is scheduled to them and finish it 20 s later."""

    def __init__(self, plane: PlaneInMemory, names: str) -> None:
        self.plane = plane
        self.names = list(names)
        self.runs: Counter[str] = Counter()
        self.finished_by: Counter[str] = Counter()
        for name in names:
            plane.add_node(name)

    def act(self, second: int) -> None:
        if second % 30 == 0:
            for name in self.names:
                self.plane.beat(name)
        for task in self.plane.tasks():
            node, name = task.status.assigned_node, task.metadata.name
            if node not in self.names:
                continue
            if task.status.phase is TaskPhase.SCHEDULED:
                self.runs[name] += 1
                claimed = {"phase": "Running", "claimedAt": format_time(self.plane.now)}
                self.plane.write_status(AGENTIC_TASKS, name, claimed)
            elif self._has_run_long_enough(task):
                self.finished_by[node] += 1
                self.plane.write_status(AGENTIC_TASKS, name, {"phase": "Succeeded", "verdict": "GO"})

    def _has_run_long_enough(self, task: AgenticTask) -> bool:
        claimed = task.status.claimed_at
        return claimed is not None and self.plane.now - claimed >= TASK_TIME

    def nodes_at_work(self) -> list[str]:
        return [task.status.assigned_node for task in self.plane.tasks() if task.is_in_flight]


def all_done(plane: PlaneInMemory) -> bool:
    return all(task.is_terminal for task in plane.tasks())


@pytest.mark.slow
def test_three_nodes_and_25_tasks_never_run_one_at_a_time(plane: PlaneInMemory) -> None:
    """While three tasks are left all three nodes work, and no node ever has two tasks."""
    agents = SimulatedAgents(plane, "abc")
    for number in range(25):
        plane.add_task(f"task-{number:02}")
    for second in range(1000):
        plane.settle()
        at_work = agents.nodes_at_work()
        assert len(at_work) == len(set(at_work)), at_work
        left = sum(not task.is_terminal for task in plane.tasks())
        assert len(at_work) == min(3, left)
        if left == 0:
            break
        agents.act(second)
        plane.clock.move(1)
    assert all_done(plane)
    assert set(agents.runs.values()) == {1}
    assert min(agents.finished_by.values()) >= 8


@pytest.mark.slow
def test_a_node_that_dies_half_way_costs_no_task(plane: PlaneInMemory) -> None:
    """The other two finish all 25; only what the dead node held ran twice."""
    agents = SimulatedAgents(plane, "abc")
    for number in range(25):
        plane.add_task(f"task-{number:02}")
    for second in range(1000):
        if second == 70:
            agents.names.remove("b")
        plane.settle()
        agents.act(second)
        if all_done(plane):
            break
        plane.clock.move(1)
    assert all_done(plane)
    assert all(task.on_target for task in plane.tasks())
    assert sorted(agents.runs.values())[-2:] == [1, 2]

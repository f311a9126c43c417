from __future__ import annotations

from datetime import timedelta

import pytest

from journeyman.model.agentic_task import FailureReason, TaskPhase
from journeyman.model.meta import find_condition
from journeyman.model.resources import AGENTIC_TASKS
from journeyman_plane.core.scheduler import schedule_tasks
from tests.support.plane_objects import PlaneInMemory


def assignments(plane: PlaneInMemory) -> dict[str, str]:
    return {
        task.metadata.name: task.status.assigned_node for task in plane.tasks() if task.status.assigned_node
    }


def reservations(plane: PlaneInMemory) -> dict[str, str]:
    return {name: plane.node(name).status.current_task for name in plane.node_names()}


def scheduled_reason(plane: PlaneInMemory, name: str) -> str:
    condition = find_condition(plane.task(name).status.conditions, "Scheduled")
    assert condition is not None
    return f"{condition.status}/{condition.reason}"


def test_a_task_goes_to_the_first_node_by_name_that_fits(plane: PlaneInMemory) -> None:
    """The node is reserved under the task's reference, and the task names its node."""
    plane.add_node("b", capability={"availableRAMGB": 32})
    plane.add_node("c", capability={"availableRAMGB": 32})
    plane.add_node("a", capability={"availableRAMGB": 8})
    plane.add_task("big", requiredCapability={"minRAMGB": 16})
    plane.settle()
    assert assignments(plane) == {"big": "b"}
    assert reservations(plane) == {"a": "", "b": "default/big", "c": ""}
    assert plane.task("big").status.phase is TaskPhase.SCHEDULED
    assert scheduled_reason(plane, "big") == "True/FleetNodeAssigned"


def test_the_oldest_task_comes_first(plane: PlaneInMemory) -> None:
    """Age decides, not name and not priority."""
    plane.add_node("desk")
    plane.add_task("z-first")
    plane.clock.move(1)
    plane.add_task("a-second", priority=100)
    plane.settle()
    assert assignments(plane) == {"z-first": "desk"}


@pytest.mark.parametrize("phase", ["Draining", "NotReady"])
def test_a_node_that_is_not_ready_gets_nothing(plane: PlaneInMemory, phase: str) -> None:
    """What the node says of itself holds in the instant in which it says it."""
    plane.add_node("desk", phase=phase)
    plane.add_task("answer")
    plane.make_pass([schedule_tasks])
    assert assignments(plane) == {}


def test_a_ready_node_with_a_stale_heartbeat_gets_nothing(plane: PlaneInMemory) -> None:
    """The phase alone is not trusted: nobody may have had the time to correct it."""
    plane.add_node("desk", beat_seconds_ago=91)
    plane.add_task("answer")
    plane.make_pass([schedule_tasks])
    assert assignments(plane) == {}


def test_two_passes_on_one_stale_view_never_book_a_node_twice(plane: PlaneInMemory) -> None:
    """Each pass decides on the same view for another task; only the first one's chain is carried out."""
    plane.add_node("desk")
    plane.add_task("one")
    first = plane.decide(schedule_tasks)
    plane.clock.move(-1)
    plane.add_task("older")
    second = plane.decide(schedule_tasks)
    assert [chain.decision for chain in first] == ["task_scheduled"]
    assert [chain.decision for chain in second] == ["task_scheduled", "task_waits"]
    plane.carry_out(second)
    assert plane.carry_out(first) == [False]
    assert assignments(plane) == {"older": "desk"}
    assert reservations(plane) == {"desk": "default/older"}


def test_of_two_schedulers_with_one_view_each_task_gets_one_node(plane: PlaneInMemory) -> None:
    """Two full passes over three nodes and five tasks, decided at once: nothing is given out twice."""
    for name in "abc":
        plane.add_node(name)
    for number in range(5):
        plane.add_task(f"task-{number}")
    first, second = plane.decide(schedule_tasks), plane.decide(schedule_tasks)
    plane.carry_out(first)
    assert not any(plane.carry_out(second))
    assert sorted(assignments(plane).values()) == ["a", "b", "c"]


def test_a_reservation_whose_task_is_deleted_heals(plane: PlaneInMemory) -> None:
    """The node is free again in the next pass, for the task that waits."""
    plane.add_node("desk")
    plane.add_task("one")
    plane.settle()
    plane.delete(AGENTIC_TASKS, "one")
    plane.settle()
    assert reservations(plane) == {"desk": ""}
    plane.add_task("two")
    plane.settle()
    assert assignments(plane) == {"two": "desk"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_task_frees_its_node(plane: PlaneInMemory, phase: str) -> None:
    """The next task takes the place of the finished one within one pass."""
    plane.add_node("desk")
    plane.add_task("one")
    plane.settle()
    plane.add_task("two")
    plane.write_status(AGENTIC_TASKS, "one", {"phase": phase, "verdict": "GO"})
    plane.make_pass([schedule_tasks])
    assert reservations(plane) == {"desk": "default/two"}


def test_a_reservation_for_a_task_that_is_elsewhere_heals(plane: PlaneInMemory) -> None:
    """A task has one node; another one that still names it is free."""
    plane.add_node("a", currentTask="default/one")
    plane.add_node("b", currentTask="default/one")
    plane.add_task("one", status={"phase": "Running", "assignedNode": "b"})
    plane.settle()
    assert reservations(plane) == {"a": "", "b": "default/one"}


def test_a_reservation_that_was_lost_is_restored_and_never_booked_over(plane: PlaneInMemory) -> None:
    """The assignment of a task in flight holds its node even where currentTask was wiped."""
    plane.add_node("desk")
    plane.add_task("one", status={"phase": "Running", "assignedNode": "desk"})
    plane.add_task("two")
    plane.settle()
    assert reservations(plane) == {"desk": "default/one"}
    assert assignments(plane) == {"one": "desk"}


def test_a_chain_that_broke_after_the_reservation_goes_on(plane: PlaneInMemory) -> None:
    """The node stays reserved for the task whose patch failed, although an older task waits for it by now."""
    plane.add_node("desk")
    plane.add_task("one")
    (chain,) = plane.decide(schedule_tasks)
    plane.write_spec(AGENTIC_TASKS, "one", {"priority": 5})
    assert plane.carry_out([chain]) == [False]
    assert reservations(plane) == {"desk": "default/one"}
    plane.clock.move(-10)
    plane.add_task("older")
    plane.make_pass([schedule_tasks])
    assert assignments(plane) == {"one": "desk"}


def test_a_reservation_for_a_task_that_cannot_start_is_cleared(plane: PlaneInMemory) -> None:
    """A pending task that may not run holds no node."""
    plane.add_node("desk", currentTask="default/blocked")
    plane.add_task("blocked", dependsOn=["missing"])
    plane.add_task("ready")
    plane.settle()
    assert assignments(plane) == {"ready": "desk"}


def test_an_agents_limit_counts_all_its_tasks_in_flight(plane: PlaneInMemory) -> None:
    """With maxConcurrentTasks 2 the third task waits, although a node is free, until one ends."""
    for name in "abc":
        plane.add_node(name)
    plane.add_persona("coder", maxConcurrentTasks=2)
    for number in range(3):
        plane.add_task(f"task-{number}", agent="coder")
    plane.settle()
    assert assignments(plane) == {"task-0": "a", "task-1": "b"}
    assert scheduled_reason(plane, "task-2") == "False/AgentBusy"
    plane.write_status(AGENTIC_TASKS, "task-0", {"phase": "Succeeded", "verdict": "GO"})
    plane.settle()
    assert assignments(plane)["task-2"] == "a"


def test_a_task_whose_agent_is_missing_fails(plane: PlaneInMemory) -> None:
    """The reason is in the schema's vocabulary, and the task is finished."""
    plane.add_task("one", agent="nobody")
    plane.settle()
    status = plane.task("one").status
    assert (status.phase, status.failure_reason) == (TaskPhase.FAILED, FailureReason.AGENT_NOT_FOUND)
    assert status.finished_at == plane.now


def test_jobs_do_not_reserve_their_node(plane: PlaneInMemory) -> None:
    """Tasks of a Job-mode Agent go to a node that is busy, and leave it free for others."""
    plane.add_node("desk")
    plane.add_persona("jobber", execution={"mode": "Job"})
    plane.add_task("job-1", agent="jobber")
    plane.add_task("job-2", agent="jobber")
    plane.add_task("local")
    plane.settle()
    assert assignments(plane) == {"job-1": "desk", "job-2": "desk", "local": "desk"}
    assert reservations(plane) == {"desk": "default/local"}


def test_a_waiting_task_says_why(plane: PlaneInMemory) -> None:
    """No node that could ever take it is another matter than none that is free."""
    plane.add_node("desk", capability={"accelerator": "metal", "availableRAMGB": 8})
    plane.add_task("one")
    plane.clock.move(1)
    plane.add_task("two")
    plane.add_task("cuda", requiredCapability={"accelerator": "cuda"})
    plane.settle()
    assert plane.task("two").status.phase is TaskPhase.PENDING
    assert scheduled_reason(plane, "two") == "False/NoNodeFree"
    assert scheduled_reason(plane, "cuda") == "False/NoNodeFits"
    condition = find_condition(plane.task("cuda").status.conditions, "Scheduled")
    assert condition is not None
    assert "accelerator" in condition.message


def test_a_task_that_is_being_deleted_is_not_scheduled(plane: PlaneInMemory) -> None:
    """A task that only waits for its finalizers will not need a node."""
    plane.add_node("desk")
    plane.add_task("one")
    plane.write_metadata(AGENTIC_TASKS, "one", {"finalizers": ["journeyman.dev/test"]})
    plane.delete(AGENTIC_TASKS, "one")
    plane.settle()
    assert assignments(plane) == {}


def test_the_scheduled_condition_dates_from_this_assignment(plane: PlaneInMemory) -> None:
    """An agent that hands a task back leaves the condition as it was; the next assignment starts anew."""
    plane.add_node("desk")
    plane.add_task("one")
    plane.settle()
    plane.clock.move(60)
    plane.beat("desk")
    plane.write_status(AGENTIC_TASKS, "one", {"phase": "Pending", "assignedNode": None})
    plane.settle()
    condition = find_condition(plane.task("one").status.conditions, "Scheduled")
    assert condition is not None
    assert condition.last_transition_time == plane.now


def test_a_settled_plane_writes_nothing(plane: PlaneInMemory) -> None:
    """While nothing changes no resourceVersion moves, be there busy nodes, waiting tasks or finished ones."""
    plane.add_node("a")
    plane.add_node("b", phase="Draining")
    plane.add_node("c", beat_seconds_ago=500)
    plane.add_persona("coder", maxConcurrentTasks=1)
    for number in range(4):
        plane.add_task(f"task-{number}", agent="coder" if number % 2 else "")
    plane.add_task("dependant", dependsOn=["task-0"])
    plane.add_task("done", status={"phase": "Succeeded", "verdict": "GO"})
    plane.settle()
    before = plane.store.version()
    for _ in range(5):
        plane.clock.move(10)
        assert plane.make_pass() == 0
    assert plane.store.version() == before
    assert plane.now - plane.node("a").status.last_heartbeat_time == timedelta(seconds=50)  # type: ignore[operator]


def test_an_agent_that_appears_late_does_not_revive_a_failed_task(plane: PlaneInMemory) -> None:
    """Failed is final."""
    plane.add_node("desk")
    plane.add_task("one", agent="late")
    plane.settle()
    plane.add_persona("late")
    plane.settle()
    assert plane.task("one").status.phase is TaskPhase.FAILED

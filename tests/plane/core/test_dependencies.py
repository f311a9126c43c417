from __future__ import annotations

from typing import Any

import pytest

from journeyman.model.agentic_task import TaskPhase, TaskVerdict
from journeyman.model.meta import find_condition
from journeyman.model.resources import AGENTIC_TASKS
from journeyman_plane.core.dependencies import Judgement, Outlook, judge_dependencies
from tests.support.plane_objects import PlaneInMemory

RESOLVED = {"phase": "Succeeded", "verdict": "NO-GO", "result": {"extra": {"outcome": "ALREADY-RESOLVED"}}}


def judge(plane: PlaneInMemory, name: str) -> Judgement:
    plane.follower.catch_up()
    return judge_dependencies(plane.task(name), plane.follower.world)


@pytest.mark.parametrize(
    ("status", "outlook"),
    [
        (None, Outlook.WAITING),
        ({"phase": "Running"}, Outlook.WAITING),
        ({"phase": "Succeeded", "verdict": "GO"}, Outlook.CLEAR),
        ({"phase": "Succeeded", "verdict": "GATE-PASS"}, Outlook.CLEAR),
        ({"phase": "Succeeded", "verdict": "NO-GO"}, Outlook.DOOMED),
        ({"phase": "Succeeded", "verdict": "INCOMPLETE"}, Outlook.DOOMED),
        ({"phase": "Failed", "verdict": "INCOMPLETE"}, Outlook.DOOMED),
        (RESOLVED, Outlook.MOOT),
        ({"phase": "Succeeded", "verdict": "Skipped"}, Outlook.MOOT),
    ],
    ids=lambda value: value.name if isinstance(value, Outlook) else str(value),
)
def test_what_a_dependency_means(
    plane: PlaneInMemory, status: dict[str, Any] | None, outlook: Outlook
) -> None:
    """Only a good verdict clears the way; what was resolved already makes the rest moot."""
    plane.add_task("first", status=status)
    plane.add_task("second", dependsOn=["first"])
    assert judge(plane, "second").outlook is outlook


def test_a_missing_dependency_is_waited_for(plane: PlaneInMemory) -> None:
    """A dependency may be created after its dependant."""
    plane.add_task("second", dependsOn=["first"])
    assert judge(plane, "second") == Judgement(Outlook.WAITING, "first")


def test_the_weightiest_dependency_decides(plane: PlaneInMemory) -> None:
    """Moot beats doomed, doomed beats waiting, and all must be clear to start."""
    plane.add_task("good", status={"phase": "Succeeded", "verdict": "GO"})
    plane.add_task("bad", status={"phase": "Failed"})
    plane.add_task("resolved", status=RESOLVED)
    plane.add_task("one", dependsOn=["missing", "good", "bad"])
    plane.add_task("two", dependsOn=["missing", "bad", "resolved"])
    plane.add_task("three", dependsOn=["good"])
    assert judge(plane, "one") == Judgement(Outlook.DOOMED, "bad")
    assert judge(plane, "two") == Judgement(Outlook.MOOT, "resolved")
    assert judge(plane, "three") == Judgement(Outlook.CLEAR)


def test_a_chain_behind_resolved_work_is_skipped_to_its_end(plane: PlaneInMemory) -> None:
    """Dependants of resolved work succeed as Skipped without running, however long the chain."""
    plane.add_node("desk")
    plane.add_task("code", status=RESOLVED)
    plane.add_task("verify", dependsOn=["code"])
    plane.add_task("review", dependsOn=["verify"])
    plane.settle()
    for name in ("verify", "review"):
        status = plane.task(name).status
        assert (status.phase, status.verdict) == (TaskPhase.SUCCEEDED, TaskVerdict.SKIPPED)
        assert status.finished_at == plane.now
        assert status.assigned_node == ""


def test_a_chain_behind_failed_work_fails_to_its_end(plane: PlaneInMemory) -> None:
    """Dependants of failed work fail as UpstreamFailed without running."""
    plane.add_node("desk")
    plane.add_task("code", status={"phase": "Failed"})
    plane.add_task("verify", dependsOn=["code"])
    plane.add_task("review", dependsOn=["verify"])
    plane.settle()
    for name in ("verify", "review"):
        status = plane.task(name).status
        assert (status.phase, status.verdict) == (TaskPhase.FAILED, TaskVerdict.INCOMPLETE)
        condition = find_condition(status.conditions, "Failed")
        assert condition is not None
        assert condition.reason == "UpstreamFailed"


def test_a_dependant_starts_when_its_dependency_is_done(plane: PlaneInMemory) -> None:
    """A waiting task says what it waits for, and is scheduled as soon as that has its verdict."""
    plane.add_node("desk")
    plane.add_task("code")
    plane.add_task("verify", dependsOn=["code"])
    plane.settle()
    condition = find_condition(plane.task("verify").status.conditions, "Scheduled")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "WaitingForDependency")
    plane.write_status(AGENTIC_TASKS, "code", {"phase": "Succeeded", "verdict": "GO"})
    plane.settle()
    assert plane.task("verify").status.assigned_node == "desk"

"""What is decided about the tasks of one list."""

from __future__ import annotations

from typing import Any

from journeyman.core.task_plan import Cancel, Claim, HandBack, Step, Take, plan
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.meta import parse_time

CLAIMED_AT = "2026-01-01T12:00:00Z"


def task(name: str, phase: str, *, node: str = "me", kind: str = "freeform", **metadata: Any) -> AgenticTask:
    claimed = {"claimedAt": CLAIMED_AT} if phase == "Running" else {}
    return AgenticTask.from_wire(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", **metadata},
            "spec": {"kind": kind},
            "status": {"phase": phase, "assignedNode": node, **claimed},
        }
    )


def claim(name: str) -> Claim:
    return Claim("default", name, f"uid-{name}", parse_time(CLAIMED_AT))


def decide(tasks: list[AgenticTask], **given: Any) -> list[Step]:
    situation: dict[str, Any] = {
        "running": [],
        "undelivered": [],
        "node_name": "me",
        "free_slots": 1,
        "held": False,
        "can_start": lambda _: True,
    }
    return plan(tasks, **{**situation, **given})


def test_takes_what_is_scheduled_here_and_nothing_else() -> None:
    """Only a Scheduled task that is assigned to us is claimed."""
    tasks = [task("a", "Scheduled", node="you"), task("b", "Pending", node=""), task("c", "Scheduled")]
    assert decide(tasks) == [Take(tasks[2])]


def test_takes_no_more_than_there_are_slots_and_urgent_kinds_first() -> None:
    """Reviews come before verifications, these before fixes, and old tasks before new ones."""
    tasks = [
        task("new", "Scheduled", creationTimestamp="2026-01-02T00:00:00Z"),
        task("old", "Scheduled", creationTimestamp="2026-01-01T00:00:00Z"),
        task("fix", "Scheduled", kind="issue-fix"),
        task("check", "Scheduled", kind="verify"),
        task("read", "Scheduled", kind="review"),
    ]
    names = [step.task.metadata.name for step in decide(tasks, free_slots=4) if isinstance(step, Take)]
    assert names == ["read", "check", "fix", "old"]
    assert decide(tasks, free_slots=0) == []


def test_a_held_node_hands_back_what_it_has_not_claimed() -> None:
    """Nobody else would free a task that is Scheduled on a Draining node."""
    tasks = [task("a", "Scheduled"), task("b", "Running")]
    steps = decide(tasks, held=True, running=[claim("b")])
    assert steps == [HandBack(tasks[0], "the node is draining")]


def test_a_task_that_cannot_start_yet_stays_scheduled() -> None:
    """While a model loads, its task waits where it is."""
    assert decide([task("a", "Scheduled")], can_start=lambda _: False) == []


def test_a_claim_without_a_worker_is_handed_back() -> None:
    """What an agent claimed before it was killed, and never started, goes back to the scheduler."""
    lost = task("a", "Running")
    assert decide([lost]) == [HandBack(lost, "it was claimed here and has no worker any more")]


def test_what_runs_or_is_on_its_way_is_left_alone() -> None:
    """Neither our run nor our undelivered ending is handed back or claimed again."""
    tasks = [task("a", "Running"), task("b", "Running")]
    assert decide(tasks, running=[claim("a")], undelivered=[claim("b")]) == []


def test_a_run_whose_task_is_gone_or_somebody_elses_is_cancelled() -> None:
    """Deleted, deleted and made anew, assigned to another node, claimed at another time: all cancel."""
    moved = task("b", "Running", node="you")
    again = task("c", "Running")
    doomed = task("d", "Running", deletionTimestamp="2026-01-01T12:05:00Z")
    other_uid = Claim("default", "c", "uid-before", parse_time(CLAIMED_AT))
    running = [claim("a"), claim("b"), other_uid, claim("d")]
    steps = decide([moved, again, doomed], running=running)
    assert [step.claim for step in steps if isinstance(step, Cancel)] == running
    assert [step.why for step in steps if isinstance(step, Cancel)] == ["deleted"] + ["no longer ours"] * 3

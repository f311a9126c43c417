from __future__ import annotations

import pytest

from journeyman.model.agentic_task import FailureReason, TaskPhase, TaskVerdict
from journeyman.model.meta import find_condition, format_time
from journeyman.model.resources import AGENTIC_TASKS, FLEET_NODES
from journeyman_plane.core.claim_expiry import expire_claims
from tests.support.plane_objects import PlaneInMemory


def claim(plane: PlaneInMemory, name: str, node: str) -> None:
    """What an agent writes when it claims."""
    at = format_time(plane.now)
    status = {"phase": "Running", "assignedNode": node, "claimedAt": at, "startedAt": at}
    plane.write_status(AGENTIC_TASKS, name, status)


def reason_of(plane: PlaneInMemory, name: str, kind: str) -> str:
    condition = find_condition(plane.task(name).status.conditions, kind)
    assert condition is not None
    return condition.reason


def test_a_claim_expires_with_its_nodes_heartbeat(plane: PlaneInMemory) -> None:
    """At 90 seconds of silence the claim stands; a second later the task is Pending, with one strike."""
    plane.add_node("desk")
    plane.add_task("one")
    claim(plane, "one", "desk")
    plane.clock.move(90)
    assert plane.decide(expire_claims) == []
    plane.clock.move(1)
    plane.make_pass([expire_claims])
    task = plane.task("one")
    assert (task.status.phase, task.status.assigned_node) == (TaskPhase.PENDING, "")
    assert (task.status.claimed_at, task.status.started_at) == (None, None)
    assert task.claim_expiries == 1
    assert reason_of(plane, "one", "ClaimExpired") == "HeartbeatStale"


def test_a_plane_that_was_down_expires_no_claim_before_its_node_could_beat(plane: PlaneInMemory) -> None:
    """The claim of a node that goes on stands over any outage of the plane; that of a dead one does not."""
    for name in ("alive", "dead"):
        plane.add_node(name)
        plane.add_task(f"of-{name}")
        claim(plane, f"of-{name}", name)
    plane.clock.move(600)
    plane.restart()
    plane.settle()
    assert [plane.task(f"of-{name}").status.phase for name in ("alive", "dead")] == [TaskPhase.RUNNING] * 2
    plane.clock.move(91)
    plane.beat("alive")
    plane.make_pass([expire_claims])
    assert plane.task("of-alive").status.phase is TaskPhase.RUNNING
    assert plane.task("of-dead").status.phase is TaskPhase.PENDING


@pytest.mark.parametrize("phase", ["Scheduled", "Running", "Verifying"])
def test_a_task_of_a_node_that_is_gone_expires(plane: PlaneInMemory, phase: str) -> None:
    """A deleted FleetNode has no heartbeat, so it holds nothing, claimed or not."""
    plane.add_task("one", status={"phase": phase, "assignedNode": "gone"})
    plane.make_pass([expire_claims])
    assert plane.task("one").status.phase is TaskPhase.PENDING


def test_the_third_strike_fails_the_task(plane: PlaneInMemory) -> None:
    """Twice the task is given to another node; the third time it is more likely the cause than the victim."""
    for name in "abcd":
        plane.add_node(name)
    plane.add_task("one")
    for strike, node in enumerate("abc", start=1):
        plane.settle()
        assert plane.task("one").status.assigned_node == node
        claim(plane, "one", node)
        plane.delete(FLEET_NODES, node)
        plane.make_pass([expire_claims])
        assert plane.task("one").claim_expiries == strike
    status = plane.task("one").status
    assert (status.phase, status.verdict) == (TaskPhase.FAILED, TaskVerdict.INCOMPLETE)
    assert status.failure_reason is FailureReason.INFRASTRUCTURE_ERROR
    assert status.finished_at == plane.now
    assert reason_of(plane, "one", "Failed") == "ClaimExpiryLimitReached"


def test_a_running_claim_on_a_draining_node_that_beats_stands(plane: PlaneInMemory) -> None:
    """Draining takes nothing new and finishes what it has, for as long as it takes."""
    plane.add_node("desk", phase="Draining")
    plane.add_task("one")
    claim(plane, "one", "desk")
    for _ in range(20):
        plane.clock.move(60)
        plane.beat("desk", phase="Draining")
        assert plane.decide(expire_claims) == []


def test_a_task_in_flight_without_a_node_goes_back(plane: PlaneInMemory) -> None:
    """A claim that raced with its own expiry leaves Running without a node; it costs no strike."""
    plane.add_node("desk")
    plane.add_task("one", status={"phase": "Running"})
    plane.settle()
    task = plane.task("one")
    assert (task.status.phase, task.status.assigned_node) == (TaskPhase.SCHEDULED, "desk")
    assert task.claim_expiries == 0


def test_an_unclaimed_task_on_a_draining_node_goes_back_after_ninety_seconds(plane: PlaneInMemory) -> None:
    """The agent has that long to hand it back itself; another node then gets it, without a strike."""
    plane.add_node("a")
    plane.add_task("one")
    plane.settle()
    plane.clock.move(60)
    plane.beat("a", phase="Draining")
    assert plane.decide(expire_claims) == []
    plane.clock.move(31)
    plane.beat("a", phase="Draining")
    plane.add_node("b")
    plane.settle()
    task = plane.task("one")
    assert (task.status.phase, task.status.assigned_node) == (TaskPhase.SCHEDULED, "b")
    assert task.claim_expiries == 0
    assert plane.node("a").status.current_task == ""


def test_an_unclaimed_task_on_a_ready_node_is_left_alone(plane: PlaneInMemory) -> None:
    """A node that is Ready and beats may claim when it gets to it."""
    plane.add_node("desk")
    plane.add_task("one")
    plane.settle()
    plane.clock.move(3600)
    plane.beat("desk")
    assert plane.decide(expire_claims) == []


def test_a_claim_that_comes_first_wins(plane: PlaneInMemory) -> None:
    """The agent finished between decision and write: its verdict stands, and no strike is counted."""
    plane.add_node("desk", beat_seconds_ago=200)
    plane.add_task("one")
    claim(plane, "one", "desk")
    chains = plane.decide(expire_claims)
    plane.write_status(AGENTIC_TASKS, "one", {"phase": "Succeeded", "verdict": "GO"})
    assert plane.carry_out(chains) == [False]
    assert plane.task("one").on_target
    assert plane.task("one").claim_expiries == 0


def test_a_strike_is_counted_before_the_task_is_put_back(plane: PlaneInMemory) -> None:
    """If the plane dies between the two writes, the task is judged again and not forgiven."""
    plane.add_task("one", status={"phase": "Running", "assignedNode": "gone"})
    (chain,) = plane.decide(expire_claims)
    assert [type(action).__name__ for action in chain.actions] == ["PatchAnnotations", "PatchStatus"]
    plane.carry_out([chain])
    assert plane.task("one").status.phase is TaskPhase.PENDING


def test_strikes_outlast_a_restart_of_the_plane(plane: PlaneInMemory) -> None:
    """The count is on the task, so a task with two strikes fails at the next, whoever counts it."""
    struck = {"foreman.llmkube.dev/claim-expiries": "2"}
    plane.add_task("one", annotations=struck, status={"phase": "Running", "assignedNode": "gone"})
    plane.make_pass([expire_claims])
    assert plane.task("one").status.phase is TaskPhase.FAILED

from __future__ import annotations

import pytest

from journeyman.model.fleet_node import FleetNodePhase
from journeyman.model.meta import find_condition
from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core.node_staleness import judge_heartbeats
from tests.support.plane_objects import PlaneInMemory


def ready_reason(plane: PlaneInMemory, name: str) -> str:
    condition = find_condition(plane.node(name).status.conditions, "Ready")
    assert condition is not None
    return f"{condition.status}/{condition.reason}"


@pytest.mark.parametrize("phase", ["Ready", "NotReady", "Unknown"])
def test_a_fresh_heartbeat_makes_a_node_ready_whatever_its_agent_says(
    plane: PlaneInMemory, phase: str
) -> None:
    """Only Draining is an agent's own word; any other phase follows the heartbeat."""
    plane.add_node("desk", phase=phase)
    plane.make_pass([judge_heartbeats])
    assert plane.node("desk").status.phase is FleetNodePhase.READY
    assert ready_reason(plane, "desk") == "True/HeartbeatFresh"


def test_a_node_is_lost_when_its_heartbeat_is_stale(plane: PlaneInMemory) -> None:
    """At 90 seconds the node is Ready, a second later it is NotReady, and the next beat brings it back."""
    plane.add_node("desk")
    plane.clock.move(90)
    plane.make_pass([judge_heartbeats])
    assert plane.node("desk").status.phase is FleetNodePhase.READY
    plane.clock.move(1)
    plane.make_pass([judge_heartbeats])
    assert plane.node("desk").status.phase is FleetNodePhase.NOT_READY
    assert ready_reason(plane, "desk") == "False/HeartbeatStale"
    plane.beat("desk")
    plane.make_pass([judge_heartbeats])
    assert ready_reason(plane, "desk") == "True/HeartbeatFresh"


def test_a_parting_beat_counts_at_once(plane: PlaneInMemory) -> None:
    """NotReady with a null heartbeat is stale now, not in 90 seconds."""
    plane.add_node("desk")
    plane.make_pass([judge_heartbeats])
    plane.write_status(FLEET_NODES, "desk", {"phase": "NotReady", "lastHeartbeatTime": None})
    plane.make_pass([judge_heartbeats])
    assert ready_reason(plane, "desk") == "False/HeartbeatStale"


def test_a_plane_that_was_down_gives_nodes_the_time_to_beat(plane: PlaneInMemory) -> None:
    """Nobody could beat while it was down: a node is lost 90 seconds after the start, not at the start."""
    plane.add_node("alive")
    plane.add_node("dead")
    plane.settle()
    plane.clock.move(600)
    plane.restart()
    assert plane.decide(judge_heartbeats) == []
    plane.clock.move(91)
    plane.beat("alive")
    plane.make_pass([judge_heartbeats])
    assert plane.node("alive").status.phase is FleetNodePhase.READY
    assert plane.node("dead").status.phase is FleetNodePhase.NOT_READY
    plane.restart()
    assert plane.decide(judge_heartbeats) == []


def test_a_draining_node_is_left_alone(plane: PlaneInMemory) -> None:
    """Draining, fresh or stale, is the agent's business."""
    plane.add_node("fresh", phase="Draining")
    plane.add_node("stale", phase="Draining", beat_seconds_ago=300)
    assert plane.decide(judge_heartbeats) == []


def test_conditions_of_the_agent_are_kept(plane: PlaneInMemory) -> None:
    """The patch replaces the array, so it carries everybody's conditions."""
    held = {
        "type": "Held",
        "status": "True",
        "reason": "Hot",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    plane.add_node("desk", conditions=[held])
    plane.make_pass([judge_heartbeats])
    assert [item.type for item in plane.node("desk").status.conditions] == ["Held", "Ready"]


def test_nothing_is_written_while_nothing_changes(plane: PlaneInMemory) -> None:
    """A further heartbeat of a healthy node is no reason to write."""
    plane.add_node("desk")
    plane.make_pass([judge_heartbeats])
    plane.clock.move(30)
    plane.beat("desk")
    assert plane.decide(judge_heartbeats) == []


def test_a_beat_that_comes_first_wins(plane: PlaneInMemory) -> None:
    """The patch is bound to the version it was decided upon: a beat in between is not undone."""
    plane.add_node("desk", beat_seconds_ago=100)
    chains = plane.decide(judge_heartbeats)
    assert len(chains) == 1
    plane.beat("desk")
    plane.carry_out(chains)
    assert plane.node("desk").status.phase is FleetNodePhase.READY

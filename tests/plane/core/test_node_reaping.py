from __future__ import annotations

from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core.node_reaping import reap_silent_nodes
from tests.support.plane_objects import PlaneInMemory


def test_silent_draining_nodes_are_reaped_and_one_that_revives_in_the_same_instant_is_not(
    plane: PlaneInMemory,
) -> None:
    """Of 24 nodes that are to be deleted, one beats between the decision and the deletion, and stays."""
    for number in range(24):
        plane.add_node(f"pod-{number:02}", phase="Draining", beat_seconds_ago=601)
    chains = plane.decide(reap_silent_nodes)
    assert len(chains) == 24
    plane.beat("pod-07")
    plane.carry_out(chains)
    assert plane.node_names() == ["pod-07"]


def test_a_namesake_that_was_made_meanwhile_is_not_deleted(plane: PlaneInMemory) -> None:
    """The deletion is bound to the uid: a node that was deleted and registered again is another node."""
    plane.add_node("desk", phase="Draining", beat_seconds_ago=601)
    chains = plane.decide(reap_silent_nodes)
    plane.delete(FLEET_NODES, "desk")
    plane.add_node("desk")
    plane.carry_out(chains)
    assert plane.node_names() == ["desk"]


def test_a_draining_node_has_ten_minutes(plane: PlaneInMemory) -> None:
    """At ten minutes of silence it is there, a second later it is not."""
    plane.add_node("desk", phase="Draining")
    plane.clock.move(600)
    assert plane.decide(reap_silent_nodes) == []
    plane.clock.move(1)
    assert len(plane.decide(reap_silent_nodes)) == 1


def test_a_plane_that_was_down_counts_the_silence_from_its_start(plane: PlaneInMemory) -> None:
    """A node that drains is not deleted because the plane could not hear it."""
    plane.add_node("desk", phase="Draining")
    plane.clock.move(3600)
    plane.restart()
    assert plane.decide(reap_silent_nodes) == []
    plane.clock.move(601)
    assert len(plane.decide(reap_silent_nodes)) == 1


def test_the_silence_of_a_node_that_never_beat_is_counted_from_its_creation(plane: PlaneInMemory) -> None:
    """Without a heartbeat the creationTimestamp stands in."""
    plane.add_node("desk", phase="Draining", beat_seconds_ago=None)
    assert plane.decide(reap_silent_nodes) == []
    plane.clock.move(601)
    assert len(plane.decide(reap_silent_nodes)) == 1


def test_a_node_that_parted_is_skipped_at_once_and_still_there_an_hour_later(plane: PlaneInMemory) -> None:
    """After the parting beat nothing is scheduled to the node, and its foreign labels outlast the hour."""
    plane.add_node("desk", labels={"rack": "kitchen"})
    plane.settle()
    plane.write_status(FLEET_NODES, "desk", {"phase": "NotReady", "lastHeartbeatTime": None})
    plane.add_task("answer")
    plane.settle()
    assert plane.task("answer").status.assigned_node == ""
    for _ in range(60):
        plane.clock.move(60)
        plane.settle()
    assert plane.node("desk").metadata.labels == {"rack": "kitchen"}
    plane.beat("desk")
    plane.settle()
    assert plane.task("answer").status.assigned_node == "desk"

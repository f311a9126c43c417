from __future__ import annotations

from typing import Any

import pytest

from journeyman.errors import InvalidError
from journeyman_plane.core.world import World


def node(beat: str | None = "2026-01-01T12:00:00Z", version: str = "1", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "foreman.llmkube.dev/v1alpha1",
        "kind": "FleetNode",
        "metadata": {"name": "desk", "resourceVersion": version},
        "spec": {"nodeName": "desk"},
        "status": {"phase": "Ready", "lastHeartbeatTime": beat, **status},
    }


def task(phase: str) -> dict[str, Any]:
    return {
        "apiVersion": "foreman.llmkube.dev/v1alpha1",
        "kind": "AgenticTask",
        "metadata": {"name": "one", "namespace": "default"},
        "spec": {"kind": "freeform"},
        "status": {"phase": phase},
    }


def test_a_mere_heartbeat_is_no_news_and_is_taken_in() -> None:
    """Most writes of a fleet are heartbeats of healthy nodes; none of them needs a pass."""
    world = World()
    assert world.put(node())
    assert not world.put(node("2026-01-01T12:00:30Z", version="2"))
    assert world.nodes["desk"].metadata.resource_version == "2"
    assert world.nodes["desk"].status.last_heartbeat_time is not None
    assert world.nodes["desk"].status.last_heartbeat_time.second == 30


@pytest.mark.parametrize(
    "change",
    [
        {"phase": "Draining"},
        {"agentVersion": "2.0.0"},
        {"currentTask": "default/one"},
    ],
    ids=str,
)
def test_any_other_change_of_a_node_is_news(change: dict[str, Any]) -> None:
    """Whatever a decision may rest on wakes the reconcilers."""
    world = World()
    world.put(node())
    assert world.put(node("2026-01-01T12:00:30Z", **change))


def test_free_memory_is_news_only_while_a_task_waits() -> None:
    """It changes with every beat of every node, and only placements rest on it."""
    world = World()
    world.put(node(capability={"availableRAMGB": 3}))
    assert not world.put(node(capability={"availableRAMGB": 4}))
    world.put(task("Pending"))
    assert world.put(node(capability={"availableRAMGB": 5}))


@pytest.mark.parametrize("before", [node(None), node(phase="NotReady")], ids=["never beat", "lost"])
def test_the_heartbeat_of_a_lost_node_is_news(before: dict[str, Any]) -> None:
    """It is what brings the node back."""
    world = World()
    world.put(before)
    after = {**before, "status": {**before["status"], "lastHeartbeatTime": "2026-01-01T12:00:30Z"}}
    assert world.put(after)


def test_a_finished_task_is_known_but_no_longer_walked_over() -> None:
    """Finished tasks pile up, so passes look at open ones only; a task may be open again."""
    world = World()
    world.put(task("Running"))
    assert len(world.tasks_in_flight()) == 1
    world.put(task("Succeeded"))
    assert (world.tasks_in_flight(), world.pending_tasks()) == ([], [])
    assert world.tasks["default/one"].is_terminal
    world.put(task("Pending"))
    assert len(world.pending_tasks()) == 1
    assert world.remove(task("Pending"))
    assert (world.tasks, world.pending_tasks()) == ({}, [])


def test_an_object_that_breaks_its_schema_counts_as_absent() -> None:
    """What cannot be read cannot be decided upon, and its former self is no longer true."""
    world = World()
    world.put(node())
    with pytest.raises(InvalidError, match="phase"):
        world.put(node(phase="Asleep"))
    assert world.nodes == {}


def test_other_kinds_are_passed_over() -> None:
    """Secrets and Events are no news to reconcilers."""
    world = World()
    assert not world.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}})

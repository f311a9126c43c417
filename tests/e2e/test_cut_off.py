"""Two machines and a plane, each in a network of its own: real sockets, and a cable that is pulled."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.errors import NotFoundError
from journeyman.model.agentic_task import AgenticTask, TaskPhase
from journeyman.model.fleet_node import FleetNode, FleetNodePhase
from journeyman.model.resources import AGENTIC_TASKS, AGENTS, FLEET_NODES, Resource
from journeyman_plane.ports import Key
from tests.support.agents import AgentProcess, agent
from tests.support.netns import Namespace, cable, namespaces
from tests.support.plane import RunningPlane, agentic_task, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


class MovedClock:
    """The host's clock, moved on by hand, as ninety seconds of silence are too long for a test."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead_seconds)


def make(plane: RunningPlane, resource: Resource, body: dict[str, Any]) -> None:
    """Creates an object as an administrator does."""
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    key = Key(resource.group, resource.plural, "default", body["metadata"]["name"])
    plane.store.create(key, head | body)


def task(plane: RunningPlane) -> AgenticTask:
    """The task now."""
    key = Key(AGENTIC_TASKS.group, AGENTIC_TASKS.plural, "default", "work")
    return AgenticTask.from_wire(plane.store.get(key))


def runs_on(plane: RunningPlane, name: str) -> bool:
    """Whether that node has claimed the task."""
    found = task(plane).status
    return (found.phase, found.assigned_node) == (TaskPhase.RUNNING, name)


def model_server(node: AgentProcess) -> int:
    """The pid of the node's model server."""
    [server] = [record for record in node.worker_records() if record.kind == "model-server"]
    return server.worker.pid


def test_a_node_that_is_cut_off_loses_its_task_and_its_late_result_is_refused(
    tmp_path: Path, tiny_model: Path
) -> None:
    """The claim moves to the node that is heard; what the other one did is kept, and not written."""
    clock = MovedClock()
    with namespaces("plane", "a", "b") as (middle, *homes), ExitStack() as running:
        addresses = [cable(middle, home, number=number)[0] for number, home in enumerate(homes, 1)]
        homes[1].shape("cable2", "2mbit")
        with middle.inside():
            # Of a network that is the test's own.
            everywhere = {"host": "0.0.0.0", "tls": True, "tls_names": tuple(addresses)}
            plane = running.enter_context(running_plane(tmp_path, clock, **everywhere))
        nodes = []
        for name, home, address in zip(("node-a", "node-b"), homes, addresses, strict=True):
            server = f"https://{address}:{plane.url.rpartition(':')[2]}"
            trust = {"ca_file": str(plane.data_dir / "ca.crt")}
            with home.inside():
                node = agent(
                    tmp_path, server, plane.token_file, name=name, models=(str(tiny_model),), options=trust
                )
                nodes.append(running.enter_context(node).until_serving())
        pull_the_cable(plane, clock, middle, *nodes)


def pull_the_cable(
    plane: RunningPlane, clock: MovedClock, middle: Namespace, cut: AgentProcess, heard: AgentProcess
) -> None:
    """What the test is about, once all are there."""
    persona = {
        "role": "planner",
        "systemPrompt": "Say something.",
        "maxOutputTokens": 16,
        "tools": ["submit_result"],
    }
    make(plane, AGENTS, {"metadata": {"name": "helper"}, "spec": persona})
    eventually(lambda: all(is_ready(plane, node.name) for node in (cut, heard)), within_seconds=30)
    # The first node by name gets the task, and its model falls silent over it.
    os.kill(model_server(cut), signal.SIGSTOP)
    make(plane, AGENTIC_TASKS, agentic_task("work", {"agentRef": {"name": "helper"}}))
    eventually(lambda: runs_on(plane, cut.name), within_seconds=30)
    eventually(lambda: cut.status()["tasks"], within_seconds=30)
    middle.ip("link", "set", "cable1", "down")
    clock.ahead_seconds = 75
    eventually(lambda: task(plane).is_terminal, within_seconds=90)
    ended = task(plane)
    assert ended.status.assigned_node == heard.name
    assert ended.claim_expiries == 1
    clock.ahead_seconds = 0
    os.kill(model_server(cut), signal.SIGCONT)
    eventually(lambda: cut.status()["undelivered"] == 1, within_seconds=60)
    middle.ip("link", "set", "cable1", "up")
    eventually(lambda: cut.status()["deadLetters"], within_seconds=60)
    [letter] = cut.status()["deadLetters"]
    assert letter["task"] == "default/work"
    assert f"on {heard.name}" in letter["why"]
    assert task(plane) == ended
    eventually(lambda: is_ready(plane, cut.name), within_seconds=60)


def is_ready(plane: RunningPlane, name: str) -> bool:
    """Whether the plane has just heard of that node, and that it serves a model."""
    key = Key(FLEET_NODES.group, FLEET_NODES.plural, "", name)
    try:
        node = FleetNode.from_wire(plane.store.get(key))
    except NotFoundError:
        return False
    capability = node.status.capability
    return node.status.phase is FleetNodePhase.READY and bool(capability.installed_models)

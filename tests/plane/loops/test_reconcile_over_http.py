"""The reconcilers in a running plane, as agents and people meet them over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.model.meta import format_time
from tests.support.clock import FakeClock
from tests.support.plane import FOREMAN, MERGE_PATCH, agentic_task, fleet_node, running_plane
from tests.support.waiting import eventually

TASKS = f"{FOREMAN}/namespaces/default/agentictasks"
NODES = f"{FOREMAN}/fleetnodes"
RELEASES = f"{FOREMAN}/agentreleases"

pytestmark = pytest.mark.slow


@pytest.fixture
def clock() -> FakeClock:
    """The plane's clock, which stands still unless it is moved."""
    return FakeClock()


@pytest.fixture
def client(tmp_path: Path, clock: FakeClock) -> Iterator[httpx.Client]:
    """A client of a plane that ticks often."""
    with running_plane(tmp_path, clock, reconcile_tick_seconds=0.05) as running, running.client() as opened:
        yield opened


def patch_status(client: httpx.Client, path: str, **status: Any) -> dict[str, Any]:
    reply = client.patch(f"{path}/status", json={"status": status}, headers=MERGE_PATCH)
    assert reply.status_code == 200, reply.text
    body: dict[str, Any] = reply.json()
    return body


def status_of(client: httpx.Client, path: str) -> dict[str, Any]:
    status: dict[str, Any] = client.get(path).json().get("status", {})
    return status


def join(client: httpx.Client, clock: FakeClock, name: str, **status: Any) -> None:
    assert client.post(NODES, json=fleet_node(name)).status_code == 201
    patch_status(
        client, f"{NODES}/{name}", phase="Ready", lastHeartbeatTime=format_time(clock.now()), **status
    )


def test_a_posted_task_is_scheduled_without_waiting_for_a_tick(tmp_path: Path, clock: FakeClock) -> None:
    """The plane ticks once an hour here; the write itself is what wakes the scheduler."""
    with (
        running_plane(tmp_path, clock, reconcile_tick_seconds=3600.0) as running,
        running.client() as client,
    ):
        join(client, clock, "desk")
        client.post(TASKS, json=agentic_task("one"))
        eventually(lambda: status_of(client, f"{TASKS}/one").get("assignedNode") == "desk")
        assert status_of(client, f"{NODES}/desk")["currentTask"] == "default/one"


def test_a_parted_node_is_skipped_and_kept_for_an_hour(client: httpx.Client, clock: FakeClock) -> None:
    """The parting beat takes effect at once, and an hour later the node is still there."""
    join(client, clock, "desk")
    patch_status(client, f"{NODES}/desk", phase="NotReady", lastHeartbeatTime=None)
    client.post(TASKS, json=agentic_task("one"))
    eventually(lambda: status_of(client, f"{TASKS}/one").get("phase") == "Pending")
    clock.move(3600)
    client.post(TASKS, json=agentic_task("two"))
    eventually(lambda: status_of(client, f"{TASKS}/two").get("phase") == "Pending")
    assert status_of(client, f"{NODES}/desk")["phase"] == "NotReady"


def test_silent_draining_nodes_are_reaped_and_a_beating_one_is_not(
    client: httpx.Client, clock: FakeClock
) -> None:
    """Twenty-three leaked nodes go in one pass; the one that beats stays."""
    for number in range(24):
        join(client, clock, f"pod-{number:02}")
        patch_status(client, f"{NODES}/pod-{number:02}", phase="Draining")
    patch_status(client, f"{NODES}/pod-07", lastHeartbeatTime="2026-01-01T12:10:01Z")
    clock.move(601)
    eventually(lambda: len(client.get(NODES).json()["items"]) == 1)
    assert client.get(f"{NODES}/pod-07").status_code == 200


def test_a_release_is_asked_of_one_node_at_a_time(client: httpx.Client, clock: FakeClock) -> None:
    """What the plane writes passes its own schemas, from the first request to the success."""
    old = {"agentKind": "foreman-agent", "agentVersion": "1.0.0", "os": "linux", "arch": "arm64"}
    join(client, clock, "a", **old)
    join(client, clock, "b", **old)
    artifact = {"os": "linux", "arch": "arm64", "url": "https://plane/2.tar.gz", "sha256": "a" * 64}
    spec = {"agentKind": "foreman-agent", "version": "2.0.0", "artifacts": [artifact], "approved": True}
    spec["healthGate"] = {"minHealthySeconds": 0}
    assert client.post(RELEASES, json={"metadata": {"name": "two"}, "spec": spec}).status_code == 201
    for name in "ab":
        eventually(lambda: status_of(client, f"{RELEASES}/two").get("inFlightNodes") == [name])  # noqa: B023
        eventually(lambda: "updateRequest" in status_of(client, f"{NODES}/{name}"))  # noqa: B023
        # A write that changes nothing is refused by the schema if what is stored breaks it.
        patch_status(client, f"{NODES}/{name}", agentVersion="2.0.0")
    eventually(lambda: status_of(client, f"{RELEASES}/two").get("phase") == "Succeeded")
    patch_status(client, f"{RELEASES}/two", updatedNodes=2)
    assert "updateRequest" not in status_of(client, f"{NODES}/b")

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journeyman.errors import InvalidError
from journeyman.model.fleet_node import (
    Accelerator,
    Capability,
    FleetNode,
    FleetNodePhase,
    FleetNodeStatus,
    UpdateRequest,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def node(**status: Any) -> FleetNode:
    return FleetNode.from_wire(
        {
            "metadata": {"name": "desk", "creationTimestamp": "2026-03-01T11:00:00Z"},
            "spec": {"nodeName": "desk"},
            "status": status,
        }
    )


def test_a_heartbeat_is_stale_after_ninety_seconds() -> None:
    """At 90 seconds a heartbeat is fresh, a second later it is stale."""
    beaten = node(lastHeartbeatTime="2026-03-01T12:00:00Z")
    assert not beaten.heartbeat_is_stale(NOON + timedelta(seconds=90))
    assert beaten.heartbeat_is_stale(NOON + timedelta(seconds=91))


def test_a_node_that_never_beat_is_stale() -> None:
    """No heartbeat is a stale one, whatever the phase says."""
    silent = node(phase="Ready")
    assert silent.heartbeat_is_stale(NOON)
    assert not silent.is_schedulable(NOON)


@pytest.mark.parametrize(("phase", "takes_work"), [("Ready", True), ("Draining", False), ("NotReady", False)])
def test_only_a_ready_node_with_a_fresh_heartbeat_takes_work(phase: str, takes_work: bool) -> None:  # noqa: FBT001
    """The phase alone is not trusted, nor is the heartbeat."""
    beaten = node(phase=phase, lastHeartbeatTime="2026-03-01T12:00:00Z")
    assert beaten.is_schedulable(NOON) is takes_work
    assert not beaten.is_schedulable(NOON + timedelta(minutes=5))


def test_a_status_is_written_with_the_names_of_the_wire() -> None:
    """RAM is spelled totalRAMGB, a zero that was measured is written, what was not set is not."""
    status = FleetNodeStatus(
        phase=FleetNodePhase.DRAINING,
        last_heartbeat_time=NOON,
        capability=Capability(accelerator=Accelerator.METAL, total_ram_gb=64, available_ram_gb=0),
    )
    assert status.to_wire() == {
        "phase": "Draining",
        "lastHeartbeatTime": "2026-03-01T12:00:00Z",
        "capability": {"accelerator": "metal", "totalRAMGB": 64, "availableRAMGB": 0},
    }


def test_a_node_read_from_the_wire_is_written_as_it_was() -> None:
    """Reading and writing again loses nothing that we know of."""
    wire = node(
        phase="Ready", agentKind="foreman-agent", os="linux", arch="arm64", currentTask="a/b"
    ).to_wire()
    assert wire["kind"] == "FleetNode"
    assert FleetNode.from_wire(wire).to_wire() == wire


@pytest.mark.parametrize(
    "status",
    [{"phase": "Asleep"}, {"agentKind": "journeyman"}, {"capability": {"totalRAMGB": -1}}],
    ids=["phase", "agentKind", "negative RAM"],
)
def test_values_outside_the_schema_are_refused(status: dict[str, Any]) -> None:
    """The server would answer 422, so we say it first, naming the field."""
    with pytest.raises(InvalidError, match="status"):
        node(**status)


@pytest.mark.parametrize("sha256", ["", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_an_update_request_needs_a_sha256_in_lower_case_hex(sha256: str) -> None:
    """Without the hash there would be nothing to hold a download against."""
    with pytest.raises(InvalidError, match="sha256"):
        UpdateRequest.from_wire({"targetVersion": "1.0.0", "url": "https://x/y", "sha256": sha256})

"""What the control plane is told of a service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from journeyman.core.fleet_rules import Reason
from journeyman.core.fleet_service_status import SERVED, held_by, standing, status_patch
from journeyman.core.fleet_services import Order
from journeyman.core.model_server import Phase, ServerState
from journeyman.model.inference import InferenceService
from tests.support.fake_control_plane import merge_patch
from tests.support.services import service_object

NOW = datetime(2026, 12, 1, tzinfo=UTC)
SERVED_ORDER = Order("default", "chat", "uid", options={"name": "chat"})
READY = ServerState(Phase.READY, 0.0)
SHORT = ServerState(Phase.BACKOFF, 0.0, failure="InsufficientMemory", reason="needs 4 GiB; 1 GiB are free")


def read(status: dict[str, Any] | None = None, **spec: Any) -> InferenceService:
    body = service_object(**spec)
    body["metadata"] |= {"resourceVersion": "7", "generation": 3}
    return InferenceService.from_wire(body | {"status": status or {}})


def tell(status: dict[str, Any], order: Order, state: ServerState | None) -> dict[str, Any] | None:
    """The status after the patch; None where there was nothing to tell."""
    patch = status_patch(read(status), standing(order, state), "mine", NOW)
    if patch is None:
        return None
    assert patch["metadata"] == {"resourceVersion": "7"}
    told: dict[str, Any] = merge_patch(status, patch["status"])
    return told


def refused(reason: Reason) -> Order:
    return Order("default", "chat", "uid", reason=reason, message="so it is")


@pytest.mark.parametrize(
    ("order", "state", "phase", "ready", "word"),
    [
        (SERVED_ORDER, None, "Creating", 0, None),
        (SERVED_ORDER, ServerState(Phase.STARTING, 0.0), "Creating", 0, None),
        (SERVED_ORDER, READY, "Ready", 1, None),
        (SERVED_ORDER, ServerState(Phase.ASLEEP, 0.0, reason="it starts"), "Ready", 1, None),
        (SERVED_ORDER, SHORT, "Pending", 0, "InsufficientMemory"),
        (SERVED_ORDER, ServerState(Phase.HELD, 0.0, reason="no memory"), "Pending", 0, "MemoryPressure"),
        (SERVED_ORDER, ServerState(Phase.BACKOFF, 0.0, failure="Crashed"), "Progressing", 0, "Crashed"),
        (SERVED_ORDER, ServerState(Phase.FAILED, 0.0, failure="NotGguf"), "Failed", 0, "NotGguf"),
        (refused(Reason.SUSPENDED), None, "Suspended", 0, "Suspended"),
        (refused(Reason.STOPPED), None, "Stopped", 0, "Stopped"),
        (refused(Reason.SOURCE_REFUSED), None, "Failed", 0, "SourceRefused"),
    ],
)
def test_each_standing_has_its_words(
    order: Order, state: ServerState | None, phase: str, ready: int, word: str | None
) -> None:
    """A service says whether it answers, and one word why not; told once, it is not told again."""
    told = tell({}, order, state)
    assert told is not None
    assert (told["phase"], told.get("readyReplicas", 0), told.get("schedulingStatus")) == (phase, ready, word)
    (condition,) = told["conditions"]
    assert (condition["type"], condition["status"]) == (SERVED, "True" if ready else "False")
    assert condition["message"].startswith("node mine: ")
    assert condition["observedGeneration"] == 3
    assert held_by(read(told).status.conditions) == "mine"
    assert tell(told, order, state) is None


def test_numbers_that_change_are_no_transition() -> None:
    """A server that waits for memory tells other numbers at each try, and the plane hears one of them."""
    told = tell({}, SERVED_ORDER, SHORT)
    later = ServerState(Phase.BACKOFF, 9.0, failure=SHORT.failure, reason="needs 4 GiB; 2 GiB are free")
    assert told is not None
    assert tell(told, SERVED_ORDER, later) is None


def test_what_no_longer_holds_is_taken_away() -> None:
    """The reason of a service that answers again is gone; that of somebody else stays."""
    waiting = tell({}, SERVED_ORDER, SHORT)
    assert waiting is not None
    ready = tell(waiting, SERVED_ORDER, READY)
    assert ready is not None
    assert "schedulingStatus" not in ready
    assert "schedulingMessage" not in ready
    foreign = tell({"schedulingStatus": "AgentHeartbeatStale"}, SERVED_ORDER, READY)
    assert foreign is not None
    assert foreign["schedulingStatus"] == "AgentHeartbeatStale"


def test_what_the_operator_writes_is_left_to_it() -> None:
    """Where its conditions are, phase and replicas are its own, and its conditions are sent back as read."""
    available = {
        "type": "Available",
        "status": "False",
        "reason": "Creating",
        "message": "0/1",
        "lastTransitionTime": "2026-11-30T00:00:00Z",
    }
    status = {"phase": "Creating", "readyReplicas": 0, "conditions": [available]}
    told = tell(status, SERVED_ORDER, READY)
    assert told is not None
    assert (told["phase"], told["readyReplicas"]) == ("Creating", 0)
    assert told["conditions"][0] == available
    assert [each["type"] for each in told["conditions"]] == ["Available", SERVED]
    suspended = tell(status, refused(Reason.SUSPENDED), None)
    assert suspended is not None
    assert suspended["phase"] == "Suspended"


@pytest.mark.parametrize(
    ("message", "node"), [("node attic: it answers", "attic"), ("attic: it answers", ""), ("", "")]
)
def test_a_node_is_known_by_what_it_said(message: str, node: str) -> None:
    """Only our own words name a node."""
    condition = {
        "type": SERVED, "status": "True", "reason": "Serving", "message": message,
        "lastTransitionTime": "2026-11-30T00:00:00Z",
    }  # fmt: skip
    assert held_by(read({"conditions": [condition]}).status.conditions) == node

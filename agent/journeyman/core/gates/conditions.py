"""What the control plane is told: conditions by gate, written on transitions alone, and the update label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.core.gates.rules import Level
from journeyman.core.gates.verdict import GateVerdict, Verdict, explain
from journeyman.model.fleet_node import FleetNode
from journeyman.model.meta import Condition, ConditionStatus, find_condition, with_condition

SENSORS_DEGRADED = "SensorsDegraded"
BY_GATE = {
    "thermal": "ThermalPressure",
    "power": "PowerLow",
    "memory": "MemoryPressure",
    "disk": "DiskPressure",
}
# A release is fetched onto the disk and started at once: these gates say whether a node waits with that.
CONCERN_UPDATES = {"thermal", "power", "disk", "sleep", "metered"}


@dataclass(frozen=True)
class Told:
    """One condition without its time: what decides whether it has changed."""

    type: str
    status: ConditionStatus
    reason: str
    message: str


def conditions(verdict: Verdict) -> tuple[Told, ...]:
    """The conditions of this moment.  Two verdicts between which nothing changed give equal ones."""
    told = [_of_gate(gate) for gate in verdict.gates if gate.name in BY_GATE]
    return (*told, _degraded(verdict.gates))


def with_conditions(
    existing: Iterable[Condition], told: Iterable[Told], now: datetime
) -> tuple[Condition, ...] | None:
    """All conditions of a node after these were told, or None if it says so already.

    Args:
        existing: those of the node as last read, of everybody.
        told: ours.
        now: by the server's clock.
    """
    result = before = tuple(existing)
    for one in told:
        old = find_condition(result, one.type)
        if old is not None and (old.status, old.reason, old.message) == (one.status, one.reason, one.message):
            continue
        new = Condition(
            type=one.type, status=one.status, reason=one.reason, message=one.message, last_transition_time=now
        )
        result = with_condition(result, new)
    return None if result == before else result


def conditions_patch(node: FleetNode, told: Iterable[Told], now: datetime) -> dict[str, Any] | None:
    """The read-modify-write that tells the control plane, or None if it knows already.

    A merge patch replaces the whole array, so the conditions of others are sent back as they were read,
    under the resourceVersion of that read.

    Args:
        node: the reply of our last beat.
        told: all conditions of ours that may have changed.
        now: by the server's clock.
    """
    changed = with_conditions(node.status.conditions, told, now)
    if changed is None:
        return None
    return {
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": {"conditions": [condition.to_wire() for condition in changed]},
    }


def updatable(verdict: Verdict) -> str:
    """The value of the label `journeyman.dev/updatable`: whether a release should wait for this node."""
    busy = any(gate.level > Level.OPEN for gate in verdict.gates if gate.name in CONCERN_UPDATES)
    return "false" if busy else "true"


def _of_gate(gate: GateVerdict) -> Told:
    kind = BY_GATE[gate.name]
    reason = gate.reasons[0].code if gate.reasons else "WithinMarks"
    if gate.uncertain and gate.forced_until is None:
        return Told(kind, ConditionStatus.UNKNOWN, reason, _message(gate))
    status = ConditionStatus.TRUE if gate.level > Level.OPEN else ConditionStatus.FALSE
    return Told(kind, status, reason, _message(gate))


def _message(gate: GateVerdict) -> str:
    """Why, with the reading of the transition: it stands still until the next one."""
    if not gate.reasons:
        return "within its marks"
    said = "; ".join(reason.message for reason in gate.reasons if reason.message)
    return f"{explain(gate)}; {said}" if said else explain(gate)


def _degraded(gates: Iterable[GateVerdict]) -> Told:
    blind = [gate for gate in gates if gate.uncertain]
    if not blind:
        return Told(SENSORS_DEGRADED, ConditionStatus.FALSE, "SensorsTell", "every gate knows enough")
    reason = blind[0].reasons[0].code if blind[0].reasons else "SensorUnsupported"
    names = ", ".join(
        f"{gate.name} ({gate.reasons[0].code})" if gate.reasons else gate.name for gate in blind
    )
    return Told(SENSORS_DEGRADED, ConditionStatus.TRUE, reason, f"gates that know too little: {names}")

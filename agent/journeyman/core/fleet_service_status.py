"""What the control plane is told of a service that this node serves, or does not.

Where LLMKube's operator runs, its controllers write a service's phase, replicas and conditions; where these
are seen, only what metal-agent writes is written here, too: why a service waits, and that it is suspended or
stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from journeyman.core.fleet_rules import Reason
from journeyman.core.fleet_services import Order
from journeyman.core.model_server import Phase, ServerState
from journeyman.core.server_failure import FailureKind
from journeyman.model.inference import InferenceService, InferenceServicePhase
from journeyman.model.meta import Condition, ConditionStatus, find_condition, with_condition

SERVED = "journeyman.dev/Served"
CONTROLLERS_CONDITIONS = frozenset({"Available", "Progressing", "Degraded", "GPUAvailable"})
AT_REST = frozenset({InferenceServicePhase.SUSPENDED, InferenceServicePhase.STOPPED})
HELD_FOR_MEMORY = "MemoryPressure"
_NODE = re.compile(r"node ([a-z0-9][-a-z0-9]*): ")


@dataclass(frozen=True)
class Standing:
    """How a service is here.

    Attributes:
        phase: as the wire spells it.
        word: one word for programs.
        message: one line for people.
        waits: whether `word` says why the service is not served.
    """

    phase: InferenceServicePhase
    word: str
    message: str
    waits: bool = True

    @property
    def is_ready(self) -> bool:
        """Whether it answers, if only after it has been woken."""
        return self.phase is InferenceServicePhase.READY

    @property
    def kind(self) -> tuple[InferenceServicePhase, str]:
        """What makes a transition: the numbers of a message change without one."""
        return (self.phase, self.word)


def standing(order: Order, state: ServerState | None) -> Standing:
    """How a service is.

    Args:
        order: what was decided about it.
        state: of its server; None while there is none.
    """
    if order.reason is not None:
        phase = {
            Reason.SUSPENDED: InferenceServicePhase.SUSPENDED,
            Reason.STOPPED: InferenceServicePhase.STOPPED,
        }.get(order.reason, InferenceServicePhase.FAILED)
        return Standing(phase, order.reason.value, order.message)
    found = Standing(InferenceServicePhase.CREATING, "Starting", "its server starts", waits=False)
    if state is not None:
        found = _by_server(state) or found
    if order.message:
        return Standing(found.phase, found.word, f"{found.message}; {order.message}", found.waits)
    return found


def _by_server(state: ServerState) -> Standing | None:
    match state.phase:
        case Phase.READY:
            return Standing(InferenceServicePhase.READY, "Serving", "it answers", waits=False)
        case Phase.ASLEEP:
            return Standing(InferenceServicePhase.READY, "Asleep", state.reason, waits=False)
        case Phase.HELD:
            return Standing(InferenceServicePhase.PENDING, HELD_FOR_MEMORY, state.reason)
        case Phase.FAILED:
            return Standing(InferenceServicePhase.FAILED, state.failure, state.reason)
        case Phase.BACKOFF:
            waits_for_memory = state.failure == FailureKind.NO_MEMORY.value
            phase = InferenceServicePhase.PENDING if waits_for_memory else InferenceServicePhase.PROGRESSING
            return Standing(phase, state.failure, state.reason)
    return None


def held_by(conditions: Iterable[Condition]) -> str:
    """The node that says that it serves the service; empty if none does."""
    told = find_condition(conditions, SERVED)
    match = None if told is None else _NODE.match(told.message)
    return match[1] if match else ""


def status_patch(
    service: InferenceService, here: Standing, node: str, now: datetime
) -> dict[str, Any] | None:
    """The read-modify-write that tells the control plane, or None if it knows already.

    Args:
        service: the object as it was read last.
        here: how it is served here.
        node: the name of our FleetNode.
        now: by the server's clock.
    """
    status, before = service.status, find_condition(service.status.conditions, SERVED)
    told = _condition(service, here, node, now)
    written: dict[str, Any] = {}
    if not _writes_itself(service) or here.phase in AT_REST:
        written |= _phase(service, here)
    if here.waits and status.scheduling_status != here.word:
        written |= {"schedulingStatus": here.word, "schedulingMessage": here.message}
    # What others have written there is theirs to take away.
    if not here.waits and before is not None and status.scheduling_status == before.reason:
        written |= {"schedulingStatus": None, "schedulingMessage": None}
    is_known = before is not None and (before.status, before.reason, held_by([before])) == (
        told.status,
        told.reason,
        node,
    )
    if is_known and not written:
        return None
    conditions = with_condition(status.conditions, told)
    written["conditions"] = [condition.to_wire() for condition in conditions]
    return {"metadata": {"resourceVersion": service.metadata.resource_version}, "status": written}


def _writes_itself(service: InferenceService) -> bool:
    """Whether the controllers of LLMKube look after this service."""
    return any(each.type in CONTROLLERS_CONDITIONS for each in service.status.conditions)


def _phase(service: InferenceService, here: Standing) -> dict[str, Any]:
    """One server stands for all replicas: a host serves a model once."""
    status, ready = service.status, int(here.is_ready)
    runs = 0 if here.phase in AT_REST else 1
    wanted = {
        "phase": (here.phase, status.phase),
        "replicas": (runs, status.replicas),
        "readyReplicas": (ready, status.ready_replicas),
        "desiredReplicas": (service.spec.replicas, status.desired_replicas),
    }
    return {name: new for name, (new, old) in wanted.items() if new != old}


def _condition(service: InferenceService, here: Standing, node: str, now: datetime) -> Condition:
    return Condition(
        type=SERVED,
        status=ConditionStatus.TRUE if here.is_ready else ConditionStatus.FALSE,
        reason=here.word,
        message=f"node {node}: {here.message}",
        last_transition_time=now,
        observed_generation=service.metadata.generation,
    )

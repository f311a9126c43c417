"""How a cluster learns where a service of this host is reached: a Service and an EndpointSlice of its name.

They are those of LLMKube's metal-agent, word for word, so that its operator counts them and its clients find
them.  Beside its marks they have our node's label: what it does not mark is never changed while somebody may
be behind it.  Pure: objects in, objects and patches out.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from journeyman.core.fleet_services import ServedService
from journeyman.core.proxy.reach import Reach, service_name
from journeyman.core.proxy.routes import Route
from journeyman.model.meta import format_time, parse_time
from journeyman.model.registration import (
    AGENT_VERSION,
    HEARTBEAT,
    INFERENCE_SERVICE,
    MANAGED_BY,
    MANAGER,
    NODE_LABEL,
    SERVICE_NAME,
)
from journeyman.model.resources import ENDPOINT_SLICES, SERVICES

JsonObject = dict[str, Any]
PORT_NAME = "http"
# As long as the operator believes a heartbeat.
FRESH = timedelta(minutes=3)


def shown_to_others(routes: Iterable[Route], served: Iterable[ServedService]) -> list[Route]:
    """The routes, of which those that serve the fleet may be used by clients on other machines."""
    services = [(each.model, f"{each.namespace}/{each.name}") for each in served]
    return [
        replace(route, services=tuple(name for model, name in services if model == route.model))
        for route in routes
    ]


@dataclass(frozen=True)
class Registrar:
    """Who registers, and for which address.

    Attributes:
        node: the name of our FleetNode.
        version: ours.
        reach: where the proxy is reachable.
    """

    node: str
    version: str
    reach: Reach

    def service(self, served: ServedService) -> JsonObject:
        """The Service, without a selector: nobody but us says what is behind it."""
        metadata = _metadata(self.node, served) | {
            "annotations": {"llmkube.ai/metal-accelerated": "true", "llmkube.ai/native-process": "true"}
        }
        port = {"name": PORT_NAME, "port": served.port, "targetPort": self.reach.port, "protocol": "TCP"}
        spec: JsonObject = {"type": "ClusterIP", "ports": [port]}
        if self._family == "IPv6":
            spec["ipFamilies"] = [self._family]
        return {"apiVersion": SERVICES.api_version, "kind": SERVICES.kind, "metadata": metadata, "spec": spec}

    def slice(self, served: ServedService, now: datetime, *, ready: bool) -> JsonObject:
        """The EndpointSlice.

        Args:
            served: the service.
            now: by the server's clock, as the operator judges heartbeats by its own.
            ready: whether requests may be sent to it.
        """
        metadata = _metadata(self.node, served)
        metadata["labels"][SERVICE_NAME] = metadata["name"]
        metadata["annotations"] = {HEARTBEAT: format_time(now), AGENT_VERSION: self.version}
        endpoint = {
            "addresses": [self.reach.address],
            "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "name": f"{served.name}-metal"},
        }
        return {
            "apiVersion": ENDPOINT_SLICES.api_version,
            "kind": ENDPOINT_SLICES.kind,
            "metadata": metadata,
            "addressType": self._family,
            "endpoints": [endpoint],
            "ports": [{"name": PORT_NAME, "port": self.reach.port, "protocol": "TCP"}],
        }

    @property
    def _family(self) -> str:
        return f"IPv{ipaddress.ip_address(self.reach.address).version}"


def _metadata(node: str, served: ServedService) -> JsonObject:
    labels = {
        "app": served.name,
        MANAGED_BY: MANAGER,
        INFERENCE_SERVICE: served.name,
        NODE_LABEL: node,
    }
    return {"name": service_name(served.name), "namespace": served.namespace, "labels": labels}


_HEAD = ("apiVersion", "kind")


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> JsonObject | None:
    """The merge patch that makes an object say what is wanted; None if it does.

    What is not ours to say stays.  The resourceVersion makes it a compare-and-set.
    """
    body = {key: value for key, value in wanted.items() if key not in _HEAD}
    patch: JsonObject = _difference(found, body)
    if not patch:
        return None
    patch.setdefault("metadata", {})["resourceVersion"] = found["metadata"]["resourceVersion"]
    return patch


def _difference(found: Any, wanted: Any) -> Any:
    if not isinstance(wanted, Mapping):
        return wanted
    known = found if isinstance(found, Mapping) else {}
    return {
        key: _difference(known.get(key), value)
        for key, value in wanted.items()
        if not _says(known.get(key), value)
    }


def _says(found: Any, wanted: Any) -> bool:
    """Whether all that is wanted is there; what the server has added to it does not matter."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_says(found.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        same_length = isinstance(found, list) and len(found) == len(wanted)
        return same_length and all(map(_says, found, wanted))
    return bool(found == wanted)


class Claim(StrEnum):
    """Whose the name of a service is."""

    OURS = "ours"
    FREE = "free"
    FOREIGN = "foreign"
    CONTESTED = "contested"


@dataclass(frozen=True)
class Judged:
    """Whose it is, and one line about that."""

    claim: Claim
    reason: str = ""


def judge(node: str, found: Sequence[Mapping[str, Any]], now: datetime) -> Judged:
    """Whose a name is, by the Service and the EndpointSlice that there are.

    Args:
        node: the name of our FleetNode.
        found: the objects of that name, those that exist.
        now: by the server's clock.
    """
    if all(is_of_node(each, node) for each in found):
        return Judged(Claim.OURS if found else Claim.FREE)
    for each in found:
        if _labels(each).get(MANAGED_BY) != MANAGER:
            what = f"{each['kind']} {each['metadata']['name']}"
            return Judged(Claim.FOREIGN, f"the {what} is somebody else's; delete it, or rename the service")
    others = sorted({_labels(each).get(NODE_LABEL, MANAGER) for each in found} - {node})
    if any(_is_fresh(each, now) for each in found):
        return Judged(Claim.CONTESTED, f"{' and '.join(others)} registers it, too; let one of you serve it")
    return Judged(Claim.FREE)


def is_of_node(found: Mapping[str, Any], node: str) -> bool:
    """Whether it is a registration of that node."""
    labels = _labels(found)
    return labels.get(MANAGED_BY) == MANAGER and labels.get(NODE_LABEL) == node


def is_legacy(endpoints: Mapping[str, Any]) -> bool:
    """Whether an old metal-agent has left these Endpoints, which are mirrored into a second slice."""
    return _labels(endpoints).get(MANAGED_BY) == MANAGER


def _is_fresh(found: Mapping[str, Any], now: datetime) -> bool:
    annotations = found["metadata"].get("annotations") or {}
    try:
        return now - parse_time(annotations.get(HEARTBEAT, "")) <= FRESH
    except ValueError:
        return False


def _labels(found: Mapping[str, Any]) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


class State(StrEnum):
    """How a registration is, as people and programs read it."""

    READY = "ready"
    NOT_READY = "notReady"
    FOREIGN = "foreign"
    CONTESTED = "contested"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"


@dataclass(frozen=True)
class Standing:
    """One registration.

    Attributes:
        state: see `State`.
        reason: one line about it; empty where all is well.
        told_at: when the control plane last took its heartbeat, by its own clock.
    """

    state: State
    reason: str = ""
    told_at: datetime | None = None

    def shown(self, served: ServedService) -> JsonObject:
        """What people are shown."""
        return {
            "service": f"{served.namespace}/{served.name}",
            "model": served.model,
            "state": self.state.value,
            "reason": self.reason,
            "heartbeatAt": None if self.told_at is None else format_time(self.told_at),
        }

"""The plane's own limits and the policy that `journeyman cluster manifests` prints say the same.

The expressions of the policy are evaluated by an implementation of CEL, on every pair of states that matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from journeyman.core.cluster_manifests import manifests
from journeyman.model.inference import PLACED_ON
from journeyman.model.resources import (
    AGENTIC_TASKS,
    ENDPOINT_SLICES,
    FLEET_NODES,
    INFERENCE_SERVICES,
)
from journeyman.model.resources import SERVICES as KUBE_SERVICES
from journeyman_plane.adapters.crd_files import load_registry
from journeyman_plane.core import node_limits
from journeyman_plane.core.paths import Target

pytestmark = pytest.mark.slow
JsonObject = dict[str, Any]
ME = "mine"
USERS = (f"system:serviceaccount:fleet:journeyman-{ME}", f"journeyman:node:{ME}")
VERBS = {"CREATE": "create", "UPDATE": "patch", "DELETE": "delete"}
ORDER = {"targetVersion": "1", "url": "https://u", "sha256": "a"}
REGISTRY = load_registry()
NODES, TASKS, SERVICES = FLEET_NODES.plural, AGENTIC_TASKS.plural, INFERENCE_SERVICES.plural
OURS = (FLEET_NODES, AGENTIC_TASKS, INFERENCE_SERVICES)
GROUPS = {each.plural: each.group for each in (*OURS, KUBE_SERVICES, ENDPOINT_SLICES)}
MINE = {"llmkube.ai/managed-by": "metal-agent", "journeyman.dev/node": ME}


@dataclass(frozen=True)
class Write:
    """One write by the node `mine`."""

    operation: str
    plural: str
    subresource: str
    before: JsonObject | None
    after: JsonObject | None


def node(name: str = ME, status: JsonObject | None = None, **metadata: Any) -> JsonObject:
    body: JsonObject = {"metadata": {"name": name, **metadata}, "spec": {"nodeName": name}}
    return body if status is None else body | {"status": status}


def task(status: JsonObject) -> JsonObject:
    return {"metadata": {"name": "t", "namespace": "default"}, "spec": {}, "status": status}


def service(status: JsonObject, annotations: JsonObject | None) -> JsonObject:
    metadata: JsonObject = {"name": "s", "namespace": "default"}
    metadata |= {} if annotations is None else {"annotations": annotations}
    return {"metadata": metadata, "spec": {}, "status": status}


def conditions(ready: str) -> list[JsonObject]:
    return [{"type": "Held", "status": "False"}, {"type": "Ready", "status": ready}]


def writes() -> Iterator[Write]:
    """Every write of the nodes, tasks and services below, allowed or not."""
    yield from writes_of_services()
    impostor = node() | {"spec": {"nodeName": "peer"}}
    held, owned = node(finalizers=["a/b"]), node(ownerReferences=[{"name": "x"}])
    for body in (node(), node("peer"), impostor, held, owned):
        yield Write("CREATE", NODES, "", None, body)
    for body in (node(), node("peer")):
        yield Write("DELETE", NODES, "", body, None)
        yield Write("UPDATE", NODES, "status", body, body | {"status": {"phase": "Ready"}})
    for pair in itertools.product((node(), node(labels={"a": "b"}), impostor, held, owned), repeat=2):
        yield Write("UPDATE", NODES, "", *pair)
    statuses: list[JsonObject | None] = [None, {}, {"phase": "Ready"}, {"currentTask": "a/b"}]
    statuses += [{"updateRequest": ORDER}, {"updateRequest": ORDER | {"url": "https://v"}}]
    statuses += [{"conditions": each} for each in ([], conditions("True"), conditions("False"))]
    for old, new in itertools.product(statuses, repeat=2):
        yield Write("UPDATE", NODES, "status", node(status=old), node(status=new))
    phases = ("Pending", "Scheduled", "Running", "Succeeded")
    owners: tuple[JsonObject, ...] = ({}, *({"assignedNode": name} for name in (ME, "peer")))
    states = [{}, *({"phase": phase} | owner for phase in phases for owner in owners)]
    for old, new in itertools.product(states, repeat=2):
        yield Write("UPDATE", TASKS, "status", task(old), task(new))
    mine = task({"phase": "Running", "assignedNode": ME})
    yield Write("UPDATE", TASKS, "", mine, mine)
    yield Write("CREATE", TASKS, "", None, mine)
    yield Write("DELETE", TASKS, "", mine, None)
    yield from writes_of_registrations()


def registration(spec: JsonObject | None = None, **metadata: Any) -> JsonObject:
    body: JsonObject = {"metadata": {"name": "coder", "namespace": "default", **metadata}}
    return body if spec is None else body | {"spec": spec}


def writes_of_registrations() -> Iterator[Write]:
    """Every write of a few Services and EndpointSlices, by right or not."""
    named = {"kubernetes.io/service-name": "coder"}
    marks: list[JsonObject] = [{}, {"labels": {}}, {"labels": MINE}, {"labels": MINE | named}]
    marks += [{"labels": MINE | named | {key: "other"}} for key in MINE | named]
    marks += [{"labels": MINE | named, "finalizers": ["a/b"]}]
    marks += [{"labels": MINE | named, "ownerReferences": [{"name": "x"}]}]
    marks += [{"labels": MINE | named, "finalizers": [], "ownerReferences": []}]
    specs: list[JsonObject | None] = [None, {}, {"type": "ClusterIP", "selector": {}, "externalIPs": []}]
    specs += [{"type": each} for each in ("NodePort", "LoadBalancer", "ExternalName")]
    specs += [{"selector": {"app": "x"}}, {"externalIPs": ["10.0.0.1"]}, {"externalName": "evil.example"}]
    bodies = {
        KUBE_SERVICES.plural: [
            *(registration(**each) for each in marks),
            *(registration(each, labels=MINE) for each in specs),
        ],
        ENDPOINT_SLICES.plural: [registration(**each) for each in marks],
    }
    for plural, objects in bodies.items():
        for body in objects:
            yield Write("CREATE", plural, "", None, body)
            yield Write("DELETE", plural, "", body, None)
        for pair in itertools.product(objects, repeat=2):
            yield Write("UPDATE", plural, "", *pair)


def writes_of_services() -> Iterator[Write]:
    places: list[JsonObject | None] = [
        None,
        {},
        {"a": "b"},
        *({PLACED_ON: name} for name in (ME, "peer", "")),
    ]
    for place in places:
        for old, new in itertools.product(({}, {"phase": "Ready"}), repeat=2):
            yield Write("UPDATE", SERVICES, "status", service(old, place), service(new, place))
        yield Write("UPDATE", SERVICES, "", service({}, place), service({}, {PLACED_ON: ME}))
        yield Write("CREATE", SERVICES, "", None, service({}, place))
        yield Write("DELETE", SERVICES, "", service({}, place), None)


def said_by_the_plane(write: Write) -> str:
    version = "v1" if write.plural in (KUBE_SERVICES.plural, ENDPOINT_SLICES.plural) else FLEET_NODES.version
    resource = REGISTRY.find(GROUPS[write.plural], version, write.plural)
    assert resource is not None
    body = write.after or write.before or {}
    name = "" if write.operation == "CREATE" else body["metadata"]["name"]
    target = Target(resource, body["metadata"].get("namespace", ""), name, write.subresource)
    why = node_limits.refusal(ME, VERBS[write.operation], target)
    if why:
        return why
    if write.after is None:
        return node_limits.removal_refusal(ME, target, write.before or {})
    return node_limits.change_refusal(ME, target, write.before or {}, write.after)


@pytest.mark.parametrize("user", USERS)
def test_plane_and_policy_refuse_the_same_writes(user: str) -> None:
    """What one refuses the other refuses, and what one allows the other allows; some of each is there."""
    (policy,) = (
        each
        for each in manifests([ME], account_namespace="fleet", task_namespaces=["default"])
        if each["kind"] == "ValidatingAdmissionPolicy"
    )
    cel = celpy.Environment()
    programs = [cel.program(cel.compile(each["expression"])) for each in policy["spec"]["validations"]]
    allowed = refused = 0
    for write in writes():
        request = {
            "userInfo": {"username": user},
            "operation": write.operation,
            "resource": {"resource": write.plural},
            "subResource": write.subresource,
        }
        given = {"request": request, "object": write.after, "oldObject": write.before}
        context = {name: json_to_cel(value) for name, value in given.items()}
        by_policy = all(program.evaluate(context) for program in programs)
        assert by_policy == (not said_by_the_plane(write)), (write, said_by_the_plane(write))
        allowed, refused = allowed + by_policy, refused + (not by_policy)
    assert min(allowed, refused) > 30

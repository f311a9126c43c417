"""What a thief of one node's credential can do: nothing beyond that node."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from journeyman.model.inference import PLACED_ON
from journeyman.model.meta import format_time
from tests.support.joined import joined
from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, agentic_task, fleet_node, http_client
from tests.support.services import model_object, service_object

NODES, RELEASES = f"{FOREMAN}/fleetnodes", f"{FOREMAN}/agentreleases"
TASKS = f"{FOREMAN}/namespaces/default/agentictasks"
SERVING = "/apis/inference.llmkube.dev/v1alpha1/namespaces/default"
SERVICES, MODELS = f"{SERVING}/inferenceservices", f"{SERVING}/models"
ORDER = {"targetVersion": "6.6.6", "url": "https://evil.example/x.tar.gz", "sha256": "a" * 64}


@pytest.fixture
def thief(plane: RunningPlane) -> Iterator[httpx.Client]:
    """Has the credential of the node `mine`; there is a node `peer`, too, and each has a task."""
    with plane.client() as admin, joined(plane, "mine") as stolen:
        for name in ("mine", "peer"):
            _ok(admin.post(NODES, json=fleet_node(name)))
            # Draining with a fresh heartbeat: the plane's own reconcilers leave node and task alone.
            beat = {"phase": "Draining", "lastHeartbeatTime": format_time(datetime.now(UTC))}
            _ok(_patch(admin, f"{NODES}/{name}/status", status=beat))
            _ok(admin.post(TASKS, json=agentic_task(f"of-{name}")))
            # The condition says since when the node has not claimed it.
            since = _condition("Scheduled")
            status = _scheduled(name) | {"conditions": [since]}
            _ok(_patch(admin, f"{TASKS}/of-{name}/status", status=status))
        yield stolen


def _scheduled(node: str) -> dict[str, Any]:
    return {"phase": "Scheduled", "assignedNode": node}


def _condition(kind: str) -> dict[str, Any]:
    now = format_time(datetime.now(UTC))
    return {"type": kind, "status": "True", "reason": "Test", "message": "x", "lastTransitionTime": now}


def _patch(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.patch(path, json=body, headers=MERGE_PATCH)


def _ok(reply: httpx.Response) -> Any:
    assert reply.is_success, reply.text
    return reply.json()


def _forbidden(reply: httpx.Response) -> str:
    assert (reply.status_code, reply.json()["reason"]) == (403, "Forbidden"), reply.text
    return str(reply.json()["message"])


def _place(plane: RunningPlane, task: str) -> dict[str, Any]:
    status = _kept(plane, f"{TASKS}/{task}")["status"]
    return {name: status.get(name) for name in ("phase", "assignedNode")}


def _kept(plane: RunningPlane, path: str) -> Any:
    with plane.client() as admin:
        return _ok(admin.get(path))


def test_the_status_of_a_peer_is_out_of_reach(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node writes no peer's status, by patch or by update, and cannot read it."""
    _forbidden(_patch(thief, f"{NODES}/peer/status", status={"phase": "Ready"}))
    whole = _kept(plane, f"{NODES}/peer") | {"status": {"phase": "Ready"}}
    _forbidden(thief.put(f"{NODES}/peer/status", json=whole))
    _forbidden(thief.get(f"{NODES}/peer"))
    _forbidden(thief.get(NODES))
    assert _kept(plane, f"{NODES}/peer")["status"]["phase"] == "Draining"


def test_the_update_request_of_a_peer_is_out_of_reach(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node orders no peer to update."""
    _forbidden(_patch(thief, f"{NODES}/peer/status", status={"updateRequest": ORDER}))
    assert "updateRequest" not in _kept(plane, f"{NODES}/peer").get("status", {})


def test_the_labels_of_a_peer_are_out_of_reach(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node changes no peer's labels, nor its spec."""
    _forbidden(_patch(thief, f"{NODES}/peer", metadata={"labels": {"zone": "evil"}}))
    _forbidden(_patch(thief, f"{NODES}/peer", spec={"roles": ["verifier"]}))
    assert "labels" not in _kept(plane, f"{NODES}/peer")["metadata"]


@pytest.mark.parametrize("order", [ORDER, None])
def test_the_own_update_request_is_not_the_nodes_to_write(
    plane: RunningPlane, thief: httpx.Client, order: dict[str, str] | None
) -> None:
    """A node neither gives itself an order to update nor takes one away, nor says that it is Ready."""
    if order is None:
        with plane.client() as admin:
            _ok(_patch(admin, f"{NODES}/mine/status", status={"updateRequest": ORDER}))
    before = _kept(plane, f"{NODES}/mine").get("status", {}).get("updateRequest")
    _forbidden(_patch(thief, f"{NODES}/mine/status", status={"updateRequest": order}))
    _forbidden(_patch(thief, f"{NODES}/mine/status", status={"currentTask": "default/of-peer"}))
    _forbidden(_patch(thief, f"{NODES}/mine/status", status={"conditions": [_condition("Ready")]}))
    assert _kept(plane, f"{NODES}/mine").get("status", {}).get("updateRequest") == before


def test_a_peer_cannot_be_deleted(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node deletes no peer, and makes no second node."""
    _forbidden(thief.delete(f"{NODES}/peer"))
    _forbidden(thief.post(NODES, json=fleet_node("sock-puppet")))
    assert _kept(plane, f"{NODES}/peer")["metadata"]["name"] == "peer"


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"phase": "Succeeded", "verdict": "GO"}, id="finish"),
        pytest.param({"phase": "Running", "claimedAt": "2026-11-30T00:00:00Z"}, id="claim"),
        pytest.param({"phase": "Running", "assignedNode": "mine"}, id="take over"),
        pytest.param({"phase": "Pending", "assignedNode": None}, id="reset"),
    ],
)
def test_a_task_of_a_peer_is_out_of_reach(
    plane: RunningPlane, thief: httpx.Client, status: dict[str, Any]
) -> None:
    """A node neither finishes, claims, takes over nor resets a peer's task."""
    _forbidden(_patch(thief, f"{TASKS}/of-peer/status", status=status))
    assert _place(plane, "of-peer") == _scheduled("peer")


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"assignedNode": "peer"}, id="to a peer"),
        pytest.param({"phase": "Running", "assignedNode": None}, id="running nowhere"),
        pytest.param({"phase": "Pending"}, id="pending here"),
    ],
)
def test_an_own_task_cannot_be_given_away(
    plane: RunningPlane, thief: httpx.Client, status: dict[str, Any]
) -> None:
    """A node keeps its own task, ends it or hands it back, and can bring it into no other state."""
    _forbidden(_patch(thief, f"{TASKS}/of-mine/status", status=status))
    assert _place(plane, "of-mine") == _scheduled("mine")


def test_an_ended_task_stays_as_it_is(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node does not change how a task of its own has ended."""
    _ok(_patch(thief, f"{TASKS}/of-mine/status", status={"phase": "Failed", "verdict": "INCOMPLETE"}))
    _forbidden(_patch(thief, f"{TASKS}/of-mine/status", status={"phase": "Succeeded", "verdict": "GO"}))
    assert _kept(plane, f"{TASKS}/of-mine")["status"]["phase"] == "Failed"


def test_a_task_cannot_be_created(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node creates no task, and changes or deletes none, its own included."""
    _forbidden(thief.post(TASKS, json=agentic_task("evil")))
    _forbidden(_patch(thief, f"{TASKS}/of-mine", spec={"payload": {"prompt": "evil"}}))
    _forbidden(thief.delete(f"{TASKS}/of-mine"))
    assert [each["metadata"]["name"] for each in _kept(plane, TASKS)["items"]] == ["of-mine", "of-peer"]


@pytest.mark.parametrize("node", ["peer", None], ids=["of a peer", "placed nowhere"])
def test_the_status_of_a_service_that_is_not_placed_here_is_out_of_reach(
    plane: RunningPlane, thief: httpx.Client, node: str | None
) -> None:
    """A node draws to itself no traffic of a service that people have not given to it."""
    with plane.client() as admin:
        _ok(admin.post(SERVICES, json=service_object(node=node)))
    stolen = {"phase": "Ready", "endpoint": "http://evil.example/v1/chat/completions"}
    _forbidden(_patch(thief, f"{SERVICES}/chat/status", status=stolen))
    whole = _kept(plane, f"{SERVICES}/chat") | {"status": stolen}
    _forbidden(thief.put(f"{SERVICES}/chat/status", json=whole))
    assert "status" not in _kept(plane, f"{SERVICES}/chat")


def test_a_service_cannot_be_placed_made_or_changed(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node takes no service from its place, not even its own, and writes neither specs nor Models."""
    with plane.client() as admin:
        _ok(admin.post(MODELS, json=model_object()))
        for name, node in (("of-mine", "mine"), ("of-peer", "peer")):
            _ok(admin.post(SERVICES, json=service_object(name, node)))
    for name in ("of-mine", "of-peer"):
        _forbidden(_patch(thief, f"{SERVICES}/{name}", metadata={"annotations": {PLACED_ON: "mine"}}))
        _forbidden(_patch(thief, f"{SERVICES}/{name}", spec={"replicas": 0}))
        _forbidden(thief.delete(f"{SERVICES}/{name}"))
    _forbidden(thief.post(SERVICES, json=service_object("evil")))
    _forbidden(thief.post(MODELS, json=model_object("evil")))
    _forbidden(_patch(thief, f"{MODELS}/weights", spec={"source": "https://evil.example/x.gguf"}))
    _forbidden(_patch(thief, f"{MODELS}/weights/status", status={"phase": "Ready"}))
    # A write of a status reaches no metadata, or the node could give itself what is a peer's.
    status = {"status": {"phase": "Ready"}, "metadata": {"annotations": {PLACED_ON: "peer"}}}
    _ok(thief.patch(f"{SERVICES}/of-mine/status", json=status, headers=MERGE_PATCH))
    assert _kept(plane, f"{SERVICES}/of-mine")["metadata"]["annotations"] == {PLACED_ON: "mine"}
    assert _kept(plane, f"{MODELS}/weights")["spec"]["source"] == model_object()["spec"]["source"]


def test_a_secret_cannot_be_read(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node reads no secret, of any namespace, and none by a list or a watch."""
    secret = {"metadata": {"name": "forge"}, "stringData": {"token": "hush"}}
    with plane.client() as admin:
        _ok(admin.post("/api/v1/namespaces/default/secrets", json=secret))
    for path in (
        "/api/v1/secrets",
        "/api/v1/namespaces/default/secrets",
        "/api/v1/namespaces/default/secrets?watch=true",
        "/api/v1/namespaces/default/secrets/forge",
        "/api/v1/namespaces/foreman-system/secrets/node-mine",
    ):
        assert "hush" not in _forbidden(thief.get(path))


def test_a_release_cannot_be_created_or_approved(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node neither makes, approves nor publishes a release."""
    body = {"metadata": {"name": "next"}, "spec": {"agentKind": "foreman-agent", "version": "9.0.0"}}
    _forbidden(thief.post(RELEASES, json=body))
    with plane.client() as admin:
        _ok(admin.post(RELEASES, json=body))
    _forbidden(_patch(thief, f"{RELEASES}/next", spec={"approved": True}))
    _forbidden(_patch(thief, f"{RELEASES}/next/status", status={"phase": "Succeeded"}))
    _forbidden(thief.put("/artifacts/9.0.0/evil.tar.gz", content=b"evil"))
    assert not _kept(plane, f"{RELEASES}/next")["spec"]["approved"]


def test_a_credential_cannot_be_minted(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node mints no join token, writes no credential, revokes no peer's, and joins under no other name."""
    _forbidden(thief.post("/join-tokens", json={}))
    _forbidden(thief.delete("/node-credentials/peer"))
    secret = {"metadata": {"name": "node-peer"}, "type": "journeyman.dev/node-credential"}
    _forbidden(thief.post("/api/v1/namespaces/foreman-system/secrets", json=secret))
    credential = f"node.peer.{'x' * 43}"
    asked = {"name": "peer", "instance": "thief", "credential": credential}
    assert thief.post("/join", json=asked).status_code == 401
    with http_client(plane.url, credential) as stranger:
        assert stranger.get(f"{NODES}/peer").status_code == 401


def test_the_node_cannot_be_kept_from_deletion(thief: httpx.Client) -> None:
    """A node writes neither finalizers nor owners, by which an object would outlive what removes it."""
    _forbidden(_patch(thief, f"{NODES}/mine", metadata={"finalizers": ["evil.example/stay"]}))
    _forbidden(_patch(thief, f"{NODES}/mine", spec={"nodeName": "peer"}))


KUBE_SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def _registration(name: str, node: str, **spec: Any) -> dict[str, Any]:
    labels = {"llmkube.ai/managed-by": "metal-agent", "journeyman.dev/node": node}
    labels["kubernetes.io/service-name"] = name
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


def _slice(name: str, node: str, of: str = "") -> dict[str, Any]:
    body = _registration(name, node) | {"addressType": "IPv4", "endpoints": []}
    body["metadata"]["labels"]["kubernetes.io/service-name"] = of or name
    del body["spec"]
    return body


def test_services_of_others_are_out_of_reach(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node changes, takes over and deletes no Service and no slice but those that are marked as its own."""
    with plane.client() as admin:
        plain = {"metadata": {"name": "shop"}, "spec": {"selector": {"app": "shop"}}}
        _ok(admin.post(KUBE_SERVICES, json=plain))
        _ok(admin.post(SLICES, json=_slice("shop", "") | {"metadata": {"name": "shop"}}))
        for path, make in ((KUBE_SERVICES, _registration), (SLICES, _slice)):
            _ok(admin.post(path, json=make("of-peer", "peer")))
    marks = _registration("x", "mine")["metadata"]["labels"]
    for path in (KUBE_SERVICES, SLICES):
        for name in ("shop", "of-peer"):
            before = _kept(plane, f"{path}/{name}")
            _forbidden(_patch(thief, f"{path}/{name}", metadata={"labels": marks}))
            _forbidden(_patch(thief, f"{path}/{name}", endpoints=[], spec={"ports": []}))
            stolen = before | {"metadata": before["metadata"] | {"labels": marks}}
            _forbidden(thief.put(f"{path}/{name}", json=stolen))
            _forbidden(thief.delete(f"{path}/{name}"))
            assert _kept(plane, f"{path}/{name}") == before
        assert thief.delete(path).status_code == 405


def test_no_service_catches_what_is_meant_for_others(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node makes no Service without its mark, with a selector or foreign addresses, and no odd slice."""
    for spec in (
        {"selector": {"app": "shop"}},
        {"externalIPs": ["10.0.0.1"]},
        {"type": "ExternalName", "externalName": "evil.example"},
        {"type": "NodePort"},
        {"type": "LoadBalancer"},
    ):
        _forbidden(thief.post(KUBE_SERVICES, json=_registration("evil", "mine", **spec)))
    _forbidden(thief.post(KUBE_SERVICES, json=_registration("evil", "peer")))
    _forbidden(thief.post(KUBE_SERVICES, json={"metadata": {"name": "evil"}}))
    _forbidden(thief.post(SLICES, json=_slice("evil", "mine", of="shop")))
    _forbidden(thief.post(SLICES, json=_slice("evil", "peer")))
    held = _registration("evil", "mine")
    held["metadata"]["finalizers"] = ["evil.example/stay"]
    _forbidden(thief.post(KUBE_SERVICES, json=held))
    _ok(thief.post(KUBE_SERVICES, json=_registration("good", "mine")))
    _forbidden(_patch(thief, f"{KUBE_SERVICES}/good", spec={"externalIPs": ["10.0.0.1"]}))
    assert _patch(thief, f"{KUBE_SERVICES}/good/status", status={"loadBalancer": {}}).status_code == 404
    assert [each["metadata"]["name"] for each in _kept(plane, KUBE_SERVICES)["items"]] == ["good"]
    assert _kept(plane, SLICES)["items"] == []


def test_a_node_registers_itself_and_takes_it_back(thief: httpx.Client) -> None:
    """Its own registrations it makes, finds, changes and deletes."""
    for path, make in ((KUBE_SERVICES, _registration), (SLICES, _slice)):
        _ok(thief.post(path, json=make("coder", "mine")))
        found = _ok(thief.get(f"{path}?labelSelector=journeyman.dev/node=mine"))["items"]
        assert [each["metadata"]["name"] for each in found] == ["coder"]
        _ok(_patch(thief, f"{path}/coder", metadata={"annotations": {"llmkube.ai/agent-heartbeat": "x"}}))
        _ok(thief.delete(f"{path}/coder"))
        assert thief.get(f"{path}/coder").status_code == 404


def test_what_an_agent_does_is_allowed(plane: RunningPlane, thief: httpx.Client) -> None:
    """A node beats, labels itself, works on what it was given and says so, and may leave."""
    _ok(_patch(thief, f"{NODES}/mine/status", status={"phase": "Ready", "agentVersion": "1.0.0"}))
    _ok(_patch(thief, f"{NODES}/mine", metadata={"labels": {"zone": "attic"}}))
    assert len(_ok(thief.get(TASKS))["items"]) == 2
    _ok(_patch(thief, f"{TASKS}/of-mine/status", status={"phase": "Running"}))
    _ok(_patch(thief, f"{TASKS}/of-mine/status", status={"phase": "Pending", "assignedNode": None}))
    with plane.client() as admin:
        _ok(admin.post(SERVICES, json=service_object()))
    assert len(_ok(thief.get(SERVICES))["items"]) == 1
    assert _ok(thief.get(MODELS))["items"] == []
    _ok(_patch(thief, f"{SERVICES}/chat/status", status={"phase": "Ready"}))
    _ok(thief.delete(f"{NODES}/mine"))
    _ok(thief.post(NODES, json=fleet_node("mine")))
    _ok(thief.delete("/node-credentials/mine"))
    assert thief.get(f"{NODES}/mine").status_code == 401


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ({"verb": "patch", "group": "foreman.llmkube.dev", "resource": "fleetnodes", "name": "mine"}, True),
        ({"verb": "patch", "group": "foreman.llmkube.dev", "resource": "fleetnodes", "name": "peer"}, False),
        ({"verb": "get", "resource": "secrets", "namespace": "default"}, False),
        ({"verb": "get", "resource": "nonsense"}, False),
    ],
)
def test_an_access_review_says_what_a_node_may(
    thief: httpx.Client, asked: dict[str, str], *, allowed: bool
) -> None:
    """A SelfSubjectAccessReview tells a node the truth, with the reason for a no."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    status = _ok(thief.post(path, json={"spec": {"resourceAttributes": asked}}))["status"]
    assert status["allowed"] is allowed
    assert allowed or status["reason"]

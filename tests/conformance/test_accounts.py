"""What the account of a node may do: from a join on the plane, from `cluster manifests` on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from journeyman.cli import root as cli
from journeyman.core.cluster_manifests import account_of
from journeyman.core.fleet_service_status import SERVED
from journeyman.core.node_permissions import FOR_SERVICES, questions
from journeyman.core.service_account_token import account_token, token_in
from tests.conformance.kinds import FOREMAN, MODELS, NODES, SERVICES, TASKS, condition
from tests.support.api_server import ApiServer
from tests.support.node_accounts import ACCOUNTS, CORE, has_accounts, has_policies, tokens_of
from tests.support.services import service_object

pytestmark = pytest.mark.slow
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
MINE, PEER = "conformance-mine", "conformance-peer"
ORDER = {"targetVersion": "6.6.6", "url": "https://evil.example/x.tar.gz", "sha256": "a" * 64}


@pytest.fixture
def node(server: ApiServer) -> Iterator[ApiServer]:
    """The server as the account of the node `mine` sees it; there is a `peer`, and each has a task."""
    mine, _ = tokens_of(server, MINE, PEER)
    with ExitStack() as stack:
        for name in (MINE, PEER):
            body = {
                "apiVersion": "foreman.llmkube.dev/v1alpha1",
                "kind": "FleetNode",
                "metadata": {"name": name},
            }
            _made(server, NODES, body | {"spec": {"nodeName": name}})
            # Draining with a fresh heartbeat: whatever reconciles the fleet leaves node and task alone.
            beat = {"phase": "Draining", "lastHeartbeatTime": "2999-01-01T00:00:00Z"}
            _patched(server, f"{NODES}/{name}/status", {"status": beat})
            task = {"kind": "freeform", "payload": {"prompt": "Hello."}}
            body = {"apiVersion": "foreman.llmkube.dev/v1alpha1", "kind": "AgenticTask", "spec": task}
            _made(server, TASKS, body | {"metadata": {"name": f"of-{name}"}})
            since = condition("Scheduled") | {"lastTransitionTime": "2999-01-01T00:00:00Z"}
            status = {"phase": "Scheduled", "assignedNode": name, "conditions": [since]}
            _patched(server, f"{TASKS}/of-{name}/status", {"status": status})
            _made(server, SERVICES, service_object(f"of-{name}", name))
        yield stack.enter_context(server.as_bearer(mine))


def _made(server: ApiServer, path: str, body: dict[str, Any]) -> None:
    own = f"{path}/{body['metadata']['name']}"
    server.client.delete(own)
    server.made_paths.append(own)
    assert server.call("POST", path, body, record=False).status_code == 201


def _patched(server: ApiServer, path: str, body: dict[str, Any]) -> None:
    reply = server.call("PATCH", path, body, record=False)
    assert reply.status_code == 200, reply.text


def is_refused(node: ApiServer, method: str, path: str, body: Any = None) -> None:
    reply = node.call(method, path, body, record=False)
    assert (reply.status_code, reply.json()["reason"]) == (403, "Forbidden"), reply.text


def review(node: ApiServer, body: dict[str, Any]) -> bool:
    reply = node.call("POST", REVIEWS, body, record=False)
    assert reply.status_code == 201, reply.text
    allowed: bool = reply.json()["status"]["allowed"]
    return allowed


def test_reviews_allow_what_an_agent_does(node: ApiServer) -> None:
    """A SelfSubjectAccessReview answers yes to each question that `journeyman preflight` asks."""
    asked = [*questions(MINE, "default"), *questions(MINE, "default", FOR_SERVICES)]
    assert [str(each) for each in asked if not review(node, each.to_wire())] == []


def test_reviews_deny_what_is_not_its_own(node: ApiServer) -> None:
    """It answers no for the peer's node, for new tasks, secrets, releases and other namespaces."""
    for attributes in (
        {"verb": "patch", "group": "foreman.llmkube.dev", "resource": "fleetnodes", "name": PEER},
        {
            "verb": "create",
            "group": "foreman.llmkube.dev",
            "resource": "agentictasks",
            "namespace": "default",
        },
        {"verb": "get", "resource": "secrets", "namespace": "default"},
        {"verb": "create", "group": "foreman.llmkube.dev", "resource": "agentreleases"},
    ):
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        assert not review(node, body), attributes


def test_it_does_its_work(node: ApiServer) -> None:
    """It beats, labels its node, claims its task, and lists and watches what it must."""
    path = f"{NODES}/{MINE}"
    _patched(node, f"{path}/status", {"status": {"phase": "Draining", "agentVersion": "1.0.0"}})
    _patched(node, path, {"metadata": {"labels": {"zone": "attic"}}})
    listed = node.call("GET", TASKS, record=False).json()
    (mine,) = [each for each in listed["items"] if each["metadata"]["name"] == f"of-{MINE}"]
    claim = {
        "metadata": {"resourceVersion": mine["metadata"]["resourceVersion"]},
        "status": {"phase": "Running", "claimedAt": "2999-01-01T00:00:00Z"},
    }
    version = listed["metadata"]["resourceVersion"]
    with node.watching(TASKS, resourceVersion=version, timeoutSeconds="60") as events:
        _patched(node, f"{TASKS}/of-{MINE}/status", claim)
        assert next(events)["object"]["status"]["phase"] == "Running"
    assert node.call("GET", f"{FOREMAN}/agentreleases", record=False).status_code == 200


def test_it_serves_what_is_placed_on_it(node: ApiServer) -> None:
    """It follows services and Models, and tells of its own service under the version that it has read."""
    listed = node.call("GET", SERVICES, record=False).json()
    assert node.call("GET", MODELS, record=False).status_code == 200
    (mine,) = [each for each in listed["items"] if each["metadata"]["name"] == f"of-{MINE}"]
    told = {
        "metadata": {"resourceVersion": mine["metadata"]["resourceVersion"]},
        "status": {"phase": "Suspended", "readyReplicas": 0, "conditions": [condition(SERVED)]},
    }
    version = listed["metadata"]["resourceVersion"]
    with node.watching(SERVICES, resourceVersion=version, timeoutSeconds="60") as events:
        _patched(node, f"{SERVICES}/of-{MINE}/status", told)
        assert next(events)["object"]["status"]["phase"] == "Suspended"
    is_refused(node, "PATCH", f"{SERVICES}/of-{MINE}", {"spec": {"replicas": 0}})
    is_refused(node, "DELETE", f"{SERVICES}/of-{PEER}")
    is_refused(node, "POST", SERVICES, service_object("x"))


def test_its_credential_is_of_no_use_elsewhere(server: ApiServer, node: ApiServer) -> None:
    """RBAC or the plane refuse the peer's node, new tasks, secrets, releases and other credentials."""
    peer = f"{NODES}/{PEER}"
    is_refused(node, "PATCH", f"{peer}/status", {"status": {"phase": "Ready"}})
    is_refused(node, "PATCH", f"{peer}/status", {"status": {"updateRequest": ORDER}})
    is_refused(node, "PATCH", peer, {"metadata": {"labels": {"zone": "mine"}}})
    is_refused(node, "DELETE", peer)
    task = {"apiVersion": "foreman.llmkube.dev/v1alpha1", "kind": "AgenticTask", "metadata": {"name": "x"}}
    is_refused(node, "POST", TASKS, task | {"spec": {"kind": "freeform", "payload": {"prompt": "Hi."}}})
    is_refused(node, "GET", "/api/v1/namespaces/default/secrets")
    is_refused(node, "GET", "/api/v1/namespaces/kube-system/secrets/any")
    release = {
        "apiVersion": "foreman.llmkube.dev/v1alpha1",
        "kind": "AgentRelease",
        "metadata": {"name": "x"},
    }
    is_refused(node, "POST", f"{FOREMAN}/agentreleases", release | {"spec": {}})
    is_refused(node, "PATCH", f"{FOREMAN}/agentreleases/x", {"spec": {"approved": True}})
    accounts = f"{CORE}/namespaces/{ACCOUNTS}/serviceaccounts"
    mints = f"{accounts}/{account_of(PEER)}/token" if has_accounts(server) else "/join-tokens"
    is_refused(node, "POST", mints, {})


def test_what_rbac_cannot_pin_is_refused_too(server: ApiServer, node: ApiServer) -> None:
    """Its own order to update, the condition Ready and the peer's task are denied by policy."""
    if has_accounts(server) and not has_policies(server):
        pytest.skip("cannot run here: this server has no ValidatingAdmissionPolicy (Kubernetes 1.30)")
    own, peers = f"{NODES}/{MINE}/status", f"{TASKS}/of-{PEER}/status"
    is_refused(node, "PATCH", own, {"status": {"updateRequest": ORDER}})
    is_refused(node, "PATCH", own, {"status": {"currentTask": "default/x"}})
    is_refused(node, "PATCH", own, {"status": {"conditions": [condition("Ready")]}})
    is_refused(node, "PATCH", f"{SERVICES}/of-{PEER}/status", {"status": {"phase": "Ready"}})
    is_refused(node, "PATCH", peers, {"status": {"phase": "Running"}})
    is_refused(node, "PATCH", peers, {"status": {"phase": "Pending", "assignedNode": None}})


def test_a_token_renews_itself(server: ApiServer, node: ApiServer) -> None:
    """The account gets a new token of the same life for itself; a server without accounts offers none."""
    if not has_accounts(server):
        reply = server.call("POST", f"{CORE}/namespaces/default/serviceaccounts/x/token", {}, record=False)
        assert reply.status_code == 404
        return
    held = account_token(node.client.headers["Authorization"].removeprefix("Bearer "))
    assert held is not None
    reply = node.call("POST", held.path, dict(held.request()), record=False)
    assert reply.status_code == 201, reply.text
    renewed = account_token(token_in(reply.json()))
    assert renewed is not None
    assert renewed.account == account_of(MINE)
    with server.as_bearer(token_in(reply.json())) as later:
        assert later.call("GET", f"{NODES}/{MINE}", record=False).status_code == 200


def test_our_own_commands_work_with_it(server: ApiServer, node: ApiServer, tmp_path: Path) -> None:
    """`journeyman preflight` finds every permission, and `join` takes the token of an account."""
    token_file, ca_file = tmp_path / "node.token", tmp_path / "ca.crt"
    token_file.write_text(node.client.headers["Authorization"].removeprefix("Bearer "))
    ca_file.touch()
    url = str(server.client.base_url).rstrip("/")
    named = ["--token-file", str(token_file)]
    if server.ca_data:
        ca_file.write_text(server.ca_data)
        named += ["--ca-file", str(ca_file)]
    root = ["--state-root", str(tmp_path / "root")]
    asked = ["preflight", "--server", url, *named, "--node-name", MINE, *root]
    checked = CliRunner().invoke(cli, asked)
    assert checked.exit_code == 0, checked.output
    if has_accounts(server):
        # Nobody may join under the name of a node that beats.
        _patched(server, f"{NODES}/{MINE}/status", {"status": {"lastHeartbeatTime": "2020-01-01T00:00:00Z"}})
        joined = CliRunner().invoke(cli, ["join", url, *named, "--name", MINE, *root])
        assert joined.exit_code == 0, joined.output
        assert f"Joined {url} as {MINE}." in joined.output

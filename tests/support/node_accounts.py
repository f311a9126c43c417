"""Accounts of nodes as people make them: a join on the plane, `cluster manifests` on a cluster."""

from __future__ import annotations

import secrets
from typing import Any

import httpx

from journeyman.core.cluster_manifests import account_of, manifests
from journeyman.core.service_account_token import account_token, token_in
from tests.support.api_server import ApiServer

CORE, RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "ServiceAccount": f"{CORE}/namespaces/{{namespace}}/serviceaccounts",
    "Role": f"{RBAC}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{namespace}}/rolebindings",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "ValidatingAdmissionPolicy": f"{ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
ACCOUNTS, TASKS = "default", "default"
TOKEN_SECONDS = 3600


def has_accounts(server: ApiServer) -> bool:
    """Whether the server makes tokens for ServiceAccounts; the embedded plane says that it does not."""
    return "serviceaccounts/token" in _served(server, CORE)


def has_policies(server: ApiServer) -> bool:
    """Whether it knows ValidatingAdmissionPolicies, as Kubernetes does since 1.30."""
    return "validatingadmissionpolicies" in _served(server, ADMISSION)


def _served(server: ApiServer, path: str) -> set[str]:
    reply = server.client.get(path)
    return {each["name"] for each in reply.json().get("resources", ())}


def tokens_of(server: ApiServer, *nodes: str) -> list[str]:
    """What each of the nodes says with its requests."""
    if not has_accounts(server):
        return [_joined(server, node) for node in nodes]
    made = manifests(nodes, account_namespace=ACCOUNTS, task_namespaces=[TASKS], service_namespaces=[TASKS])
    for each in made:
        if not each["kind"].startswith("ValidatingAdmission") or has_policies(server):
            _apply(server, each)
    return [_requested(server, node) for node in nodes]


def _apply(server: ApiServer, body: dict[str, Any]) -> None:
    path = _PATHS[body["kind"]].format(namespace=body["metadata"].get("namespace", ""))
    own = f"{path}/{body['metadata']['name']}"
    server.client.delete(own)
    reply = server.client.post(path, json=body)
    assert reply.status_code == httpx.codes.CREATED, reply.text
    server.made_paths.append(own)


def _requested(server: ApiServer, node: str) -> str:
    """The token that `kubectl create token` gets."""
    path = f"{CORE}/namespaces/{ACCOUNTS}/serviceaccounts/{account_of(node)}/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    reply = server.client.post(path, json=body | {"spec": {"expirationSeconds": TOKEN_SECONDS}})
    assert reply.status_code == httpx.codes.CREATED, reply.text
    token = token_in(reply.json())
    assert account_token(token) is not None
    return token


def _joined(server: ApiServer, node: str) -> str:
    credential = f"node.{node}.{secrets.token_urlsafe(32)}"
    minted = server.client.post("/join-tokens", json={"node": node}).json()["token"]
    body = {"name": node, "instance": "conformance", "credential": credential}
    with server.as_bearer(minted) as newcomer:
        reply = newcomer.client.post("/join", json=body)
    assert reply.status_code == httpx.codes.CREATED, reply.text
    server.made_paths.append(f"/node-credentials/{node}")
    return credential


def let_register(server: ApiServer, node: str, *services: str) -> None:
    """Lets a node register these services of the namespace of its tasks, where names have to be granted."""
    if not has_accounts(server):
        return
    made = manifests(
        [node],
        account_namespace=ACCOUNTS,
        task_namespaces=[],
        registered=[(TASKS, service) for service in services],
    )
    for each in made:
        is_policy = each["kind"].startswith("ValidatingAdmission")
        name = f"{account_of(node)}{'.' if is_policy else ':'}registrations"
        if each["metadata"]["name"] == name and (not is_policy or has_policies(server)):
            _apply(server, each)

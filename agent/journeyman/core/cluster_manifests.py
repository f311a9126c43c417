"""What an admin applies to a cluster so that each node has a credential that is good for that node alone.

That is a ServiceAccount of the node's own, or the user of a client certificate that the node asks for.

RBAC pins what has a name; a ValidatingAdmissionPolicy says the rest, in the words of the embedded plane's own
limits: a node writes no order to update and not the condition Ready, works on its own tasks alone, and tells
of services alone that are placed on it.  What lets it register them is in `cluster_registrations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from journeyman.core.certificate_request import GROUP, USER_PREFIX, user_of
from journeyman.core.cluster_registrations import (
    asks_as,
    registration_manifests,
    registration_rules,
    registration_validations,
)
from journeyman.core.node_permissions import (
    FOR_ANY_NODE,
    FOR_CERTIFICATES,
    FOR_OWN_NODE,
    FOR_SERVICES,
    FOR_TASKS,
    Permission,
)
from journeyman.model.inference import PLACED_ON
from journeyman.model.resources import AGENTIC_TASKS, FLEET_NODES, INFERENCE_SERVICES

JsonObject = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
POLICY = "admissionregistration.k8s.io/v1"
PREFIX = "journeyman-"
# No name of a node has a colon, so no node's role is called like these.
NODES, TASKS, SERVICES = "journeyman:nodes", "journeyman:tasks", "journeyman:services"
POLICY_NAME = "journeyman-node-limits"
IS_UPDATE = 'request.operation == "UPDATE"'
# Whoever may ask for certificates, and who may do so with a token; no name of a node's account is like these.
ASKING, ASKER = "journeyman:certificate-requests", "node-bootstrapper"
IN_FLIGHT = '["Scheduled", "Running", "Verifying"]'


def manifests(
    nodes: Sequence[str],
    *,
    account_namespace: str,
    task_namespaces: Sequence[str],
    service_namespaces: Sequence[str] = (),
    registered: Sequence[tuple[str, str]] = (),
    certificates: bool = False,
    create_namespaces: bool = False,
) -> list[JsonObject]:
    """All objects, in the order in which they can be applied.

    Args:
        nodes: names of FleetNodes.
        account_namespace: where their ServiceAccounts are, or the one that may ask for certificates.
        task_namespaces: where their tasks are.
        service_namespaces: where the InferenceServices are that they serve; none where they serve none.
        registered: namespace and name of the InferenceServices that they may register as reachable.
        certificates: whether the nodes speak by client certificates, in place of ServiceAccounts.
        create_namespaces: whether the namespaces are among the objects.
    """
    spaces = [account_namespace, *task_namespaces, *service_namespaces, *(place for place, _ in registered)]
    subjects = {
        node: _user_subject(node) if certificates else _account_subject(node, account_namespace)
        for node in nodes
    }
    places = [(TASKS, each) for each in task_namespaces] + [(SERVICES, each) for each in service_namespaces]
    return [
        *(_namespaces(spaces) if create_namespaces else ()),
        _role("ClusterRole", NODES, FOR_ANY_NODE),
        _role("ClusterRole", TASKS, FOR_TASKS),
        *([_role("ClusterRole", SERVICES, FOR_SERVICES)] if service_namespaces else []),
        *_policy(account_namespace),
        *(_asking(account_namespace) if certificates else ()),
        *(item for node in nodes if not certificates for item in _account(node, account_namespace)),
        *(item for node in nodes for item in _rights(node, subjects[node], places)),
        *(item for node in nodes if registered for item in _registering(node, subjects[node], registered)),
    ]


def account_of(node: str) -> str:
    """The name of a node's ServiceAccount."""
    return PREFIX + node


def _namespaces(names: Iterable[str]) -> Iterator[JsonObject]:
    for name in dict.fromkeys(names):
        # Each cluster has that one, and nobody can delete it.
        if name != "default":
            yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _asking(account_namespace: str) -> Iterator[JsonObject]:
    """Who may ask for certificates: nodes that have one, and an account for those that join."""
    yield _role("ClusterRole", ASKING, FOR_CERTIFICATES)
    metadata = {"name": ASKER, "namespace": account_namespace}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    subjects = (
        {"kind": "ServiceAccount", "name": ASKER, "namespace": account_namespace},
        {"apiGroup": RBAC, "kind": "Group", "name": GROUP},
    )
    yield _binding("ClusterRoleBinding", {"name": ASKING}, ("ClusterRole", ASKING), *subjects)


def _account(node: str, account_namespace: str) -> Iterator[JsonObject]:
    account, subject = account_of(node), _account_subject(node, account_namespace)
    labels = {"journeyman.dev/node": node}
    metadata = {"name": account, "namespace": account_namespace, "labels": labels}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    # Its own token and no other one: so it renews itself, see TokenRequest.
    rule = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}
    rule["resourceNames"] = [account]
    yield {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    yield _binding("RoleBinding", metadata, ("Role", account), subject)


def _account_subject(node: str, account_namespace: str) -> JsonObject:
    return {"kind": "ServiceAccount", "name": account_of(node), "namespace": account_namespace}


def _user_subject(node: str) -> JsonObject:
    return {"apiGroup": RBAC, "kind": "User", "name": user_of(node)}


def _rights(node: str, subject: JsonObject, places: Iterable[tuple[str, str]]) -> Iterator[JsonObject]:
    account, labels = account_of(node), {"journeyman.dev/node": node}
    yield _role("ClusterRole", account, FOR_OWN_NODE, node)
    yield _binding(
        "ClusterRoleBinding", {"name": account, "labels": labels}, ("ClusterRole", account), subject
    )
    anybody = {"name": f"{account}:any", "labels": labels}
    yield _binding("ClusterRoleBinding", anybody, ("ClusterRole", NODES), subject)
    for role, namespace in places:
        name = f"{account}:{role.removeprefix('journeyman:')}"
        place = {"name": name, "namespace": namespace, "labels": labels}
        yield _binding("RoleBinding", place, ("ClusterRole", role), subject)


def _registering(node: str, subject: JsonObject, services: Sequence[tuple[str, str]]) -> Iterator[JsonObject]:
    account, name = account_of(node), subject["name"]
    is_account = subject["kind"] == "ServiceAccount"
    user = f"system:serviceaccount:{subject['namespace']}:{name}" if is_account else name
    return registration_manifests(node, services, account=account, user=user, subject=subject)


def _role(kind: str, name: str, permissions: Iterable[Permission], node: str = "") -> JsonObject:
    rules = [
        {"apiGroups": [each.resource.group], "resources": [each.path], "verbs": list(each.verbs)}
        | ({"resourceNames": [node]} if each.own else {})
        for each in permissions
    ]
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, "rules": rules}


def _binding(kind: str, metadata: JsonObject, role: tuple[str, str], *subjects: JsonObject) -> JsonObject:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": role[0], "name": role[1]},
        "subjects": list(subjects),
    }


def _policy(account_namespace: str) -> Iterator[JsonObject]:
    # Both, whatever these nodes use: there is one policy for all nodes of a cluster.
    prefixes = (f"system:serviceaccount:{account_namespace}:{PREFIX}", USER_PREFIX)
    is_node = " || ".join(f'request.userInfo.username.startsWith("{each}")' for each in prefixes)
    yield {
        "apiVersion": POLICY,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY_NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    *(_matched(each) for each in (FLEET_NODES, AGENTIC_TASKS, INFERENCE_SERVICES)),
                    *registration_rules(),
                ]
            },
            "matchConditions": [{"name": "is-a-node", "expression": is_node}],
            "validations": [
                {"expression": " ".join(expression.split()), "message": message}
                for expression, message in _validations(prefixes)
            ],
        },
    }
    yield {
        "apiVersion": POLICY,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY_NAME},
        "spec": {"policyName": POLICY_NAME, "validationActions": ["Deny"]},
    }


def _matched(resource: Any) -> JsonObject:
    return {
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": [resource.plural, f"{resource.plural}/status"],
    }


def _validations(prefixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """CEL expressions that must be true, and what is said where they are not."""
    yield from _of_nodes(prefixes)
    yield from _of_tasks(prefixes)
    yield from _of_services(prefixes)
    yield from registration_validations(prefixes)


def _of_nodes(prefixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    of_node = f'request.resource.resource != "{FLEET_NODES.plural}"'
    name = '(request.operation == "DELETE" ? oldObject.metadata.name : object.metadata.name)'
    yield (
        f"{of_node} || {asks_as(name, prefixes)}",
        "a node speaks for its own FleetNode alone",
    )
    yield (
        f"{of_node} || request.operation == 'DELETE' || object.spec.nodeName == object.metadata.name",
        "spec.nodeName of a node is its name",
    )
    for name in ("finalizers", "ownerReferences"):
        yield (
            f"""{of_node} || request.operation == "DELETE" || ({IS_UPDATE} ?
            {_same(f"metadata.{name}")} : !has(object.metadata.{name}))""",
            f"a node does not write metadata.{name}",
        )
    for name in ("updateRequest", "currentTask"):
        yield (
            f"{of_node} || !({IS_UPDATE}) || {_same(f'status.{name}', 'status')}",
            f"status.{name} is written by the control plane alone",
        )
    ready = "{0}.status.conditions.filter(c, c.type == 'Ready')"
    had = "has({0}.status) && has({0}.status.conditions)"
    readies = [f"({had.format(each)} ? {ready.format(each)} : [])" for each in ("object", "oldObject")]
    yield (
        f"{of_node} || !({IS_UPDATE}) || {readies[0]} == {readies[1]}",
        "the condition Ready is written by the control plane alone",
    )


def _of_tasks(prefixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    of_task = f'request.resource.resource != "{AGENTIC_TASKS.plural}"'
    yield (
        f'{of_task} || ({IS_UPDATE} && request.subResource == "status")',
        "a node writes the status of tasks alone",
    )
    yield (
        f"""{of_task} || !({IS_UPDATE}) || (has(oldObject.status) && has(oldObject.status.assignedNode)
        && {asks_as("oldObject.status.assignedNode", prefixes)})""",
        "the task is not assigned to this node",
    )
    yield (
        f"""{of_task} || !({IS_UPDATE}) || (has(oldObject.status) && has(oldObject.status.phase)
        && oldObject.status.phase in {IN_FLIGHT})""",
        "the task has ended",
    )
    node = "(has(object.status.assignedNode) ? object.status.assignedNode : '')"
    yield (
        f"""{of_task} || !({IS_UPDATE}) || (has(object.status) && (has(object.status.phase)
        && object.status.phase == "Pending" ? {node} == "" :
        {asks_as(node, prefixes)}))""",
        "a node keeps a task, ends it, or hands it back as Pending without a node",
    )


def _of_services(prefixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    of_service = f'request.resource.resource != "{INFERENCE_SERVICES.plural}"'
    yield (
        f'{of_service} || ({IS_UPDATE} && request.subResource == "status")',
        "a node writes the status of services alone",
    )
    placed_on = "oldObject.metadata.annotations"
    owner = f'{placed_on}["{PLACED_ON}"]'
    yield (
        f"""{of_service} || !({IS_UPDATE}) || (has({placed_on}) && "{PLACED_ON}" in {placed_on}
        && {asks_as(owner, prefixes)})""",
        "the service is not placed on this node",
    )


def _same(path: str, parent: str = "") -> str:
    """CEL: a field is as it was, be it absent."""

    def has(each: str) -> str:
        return " && ".join(f"has({each}.{part})" for part in (parent, path) if part)

    new, old = has("object"), has("oldObject")
    return f"(({new}) == ({old}) && (!({new}) || object.{path} == oldObject.{path}))"

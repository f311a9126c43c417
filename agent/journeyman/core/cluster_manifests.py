"""What an admin applies to a cluster so that each node has an account that is good for that node alone.

RBAC pins what has a name; a ValidatingAdmissionPolicy says the rest, in the words of the embedded plane's own
limits: a node writes no order to update and not the condition Ready, and works on its own tasks alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from journeyman.core.node_permissions import FOR_ANY_NODE, FOR_OWN_NODE, FOR_TASKS, Permission
from journeyman.model.resources import AGENTIC_TASKS, FLEET_NODES

JsonObject = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
POLICY = "admissionregistration.k8s.io/v1"
PREFIX = "journeyman-"
NODES, TASKS, POLICY_NAME = "journeyman-nodes", "journeyman-node-tasks", "journeyman-node-limits"
IN_FLIGHT = '["Scheduled", "Running", "Verifying"]'


def manifests(
    nodes: Sequence[str], *, account_namespace: str, task_namespaces: Sequence[str]
) -> list[JsonObject]:
    """All objects, in the order in which they can be applied.

    Args:
        nodes: names of FleetNodes.
        account_namespace: where their ServiceAccounts are.
        task_namespaces: where their tasks are.
    """
    return [
        _role("ClusterRole", NODES, FOR_ANY_NODE),
        _role("ClusterRole", TASKS, FOR_TASKS),
        *_policy(account_namespace),
        *(item for node in nodes for item in _of_node(node, account_namespace, task_namespaces)),
    ]


def account_of(node: str) -> str:
    """The name of a node's ServiceAccount."""
    return PREFIX + node


def _of_node(node: str, account_namespace: str, task_namespaces: Iterable[str]) -> Iterator[JsonObject]:
    account = account_of(node)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": account_namespace}
    labels = {"journeyman.dev/node": node}
    metadata = {"name": account, "namespace": account_namespace, "labels": labels}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    # Its own token and no other one: so it renews itself, see TokenRequest.
    rule = {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}
    rule["resourceNames"] = [account]
    yield {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    yield _binding("RoleBinding", metadata, ("Role", account), subject)
    yield _role("ClusterRole", account, FOR_OWN_NODE, node)
    yield _binding(
        "ClusterRoleBinding", {"name": account, "labels": labels}, ("ClusterRole", account), subject
    )
    anybody = {"name": f"{account}-any", "labels": labels}
    yield _binding("ClusterRoleBinding", anybody, ("ClusterRole", NODES), subject)
    for namespace in task_namespaces:
        place = {"name": f"{account}-tasks", "namespace": namespace, "labels": labels}
        yield _binding("RoleBinding", place, ("ClusterRole", TASKS), subject)


def _role(kind: str, name: str, permissions: Iterable[Permission], node: str = "") -> JsonObject:
    rules = [
        {"apiGroups": [each.resource.group], "resources": [each.path], "verbs": list(each.verbs)}
        | ({"resourceNames": [node]} if each.own else {})
        for each in permissions
    ]
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name}, "rules": rules}


def _binding(kind: str, metadata: JsonObject, role: tuple[str, str], subject: JsonObject) -> JsonObject:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": role[0], "name": role[1]},
        "subjects": [subject],
    }


def _policy(account_namespace: str) -> Iterator[JsonObject]:
    accounts = f"system:serviceaccount:{account_namespace}:{PREFIX}"
    yield {
        "apiVersion": POLICY,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY_NAME},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [_matched(FLEET_NODES), _matched(AGENTIC_TASKS)]},
            "matchConditions": [
                {
                    "name": "is-a-node",
                    "expression": f'request.userInfo.username.startsWith("{accounts}")',
                }
            ],
            "validations": [
                {"expression": " ".join(expression.split()), "message": message}
                for expression, message in _validations(accounts)
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


def _validations(accounts: str) -> Iterator[tuple[str, str]]:
    """CEL expressions that must be true, and what is said where they are not."""
    me = "request.userInfo.username"
    of_node = f'request.resource.resource != "{FLEET_NODES.plural}"'
    of_task = f'request.resource.resource != "{AGENTIC_TASKS.plural}"'
    is_update = 'request.operation == "UPDATE"'
    yield (
        f"""{of_node} || {me} == "{accounts}" +
        (request.operation == "DELETE" ? oldObject.metadata.name : object.metadata.name)""",
        "a node speaks for its own FleetNode alone",
    )
    yield (
        f"{of_node} || request.operation == 'DELETE' || object.spec.nodeName == object.metadata.name",
        "spec.nodeName of a node is its name",
    )
    for name in ("finalizers", "ownerReferences"):
        yield (
            f"""{of_node} || request.operation == "DELETE" || ({is_update} ?
            {_same(f"metadata.{name}")} : !has(object.metadata.{name}))""",
            f"a node does not write metadata.{name}",
        )
    for name in ("updateRequest", "currentTask"):
        yield (
            f"{of_node} || !({is_update}) || {_same(f'status.{name}', 'status')}",
            f"status.{name} is written by the control plane alone",
        )
    ready = "{0}.status.conditions.filter(c, c.type == 'Ready')"
    had = "has({0}.status) && has({0}.status.conditions)"
    readies = [f"({had.format(each)} ? {ready.format(each)} : [])" for each in ("object", "oldObject")]
    yield (
        f"{of_node} || !({is_update}) || {readies[0]} == {readies[1]}",
        "the condition Ready is written by the control plane alone",
    )
    yield (
        f'{of_task} || ({is_update} && request.subResource == "status")',
        "a node writes the status of tasks alone",
    )
    yield (
        f"""{of_task} || !({is_update}) || (has(oldObject.status) && has(oldObject.status.assignedNode)
        && {me} == "{accounts}" + oldObject.status.assignedNode)""",
        "the task is not assigned to this node",
    )
    yield (
        f"""{of_task} || !({is_update}) || (has(oldObject.status) && has(oldObject.status.phase)
        && oldObject.status.phase in {IN_FLIGHT})""",
        "the task has ended",
    )
    node = "(has(object.status.assignedNode) ? object.status.assignedNode : '')"
    yield (
        f"""{of_task} || !({is_update}) || (has(object.status) && (has(object.status.phase)
        && object.status.phase == "Pending" ? {node} == "" :
        {me} == "{accounts}" + {node}))""",
        "a node keeps a task, ends it, or hands it back as Pending without a node",
    )


def _same(path: str, parent: str = "") -> str:
    """CEL: a field is as it was, be it absent."""

    def has(each: str) -> str:
        return " && ".join(f"has({each}.{part})" for part in (parent, path) if part)

    new, old = has("object"), has("oldObject")
    return f"(({new}) == ({old}) && (!({new}) || object.{path} == oldObject.{path}))"

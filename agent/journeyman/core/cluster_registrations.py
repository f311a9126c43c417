"""What an admin applies so that a node may register services: under names that it was given, and no others.

A Service or an EndpointSlice can catch what is meant for others.  RBAC pins the names of what is changed, but
not of what is made, and not what is in it; the rest is said by policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from journeyman.core.node_permissions import Permission, Question
from journeyman.core.proxy.reach import service_name
from journeyman.model.registration import MANAGED_BY, MANAGER, NODE_LABEL, SERVICE_NAME
from journeyman.model.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES

JsonObject = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"
POLICY = "admissionregistration.k8s.io/v1"
REGISTRATIONS = (SERVICES, ENDPOINT_SLICES)
FOR_NAMED = tuple(Permission(each, ("get", "update", "patch", "delete")) for each in REGISTRATIONS)
# What an old metal-agent may have left; an agent that may not look for it goes on without.
FOR_LEFT = (Permission(ENDPOINTS, ("get", "delete")),)
# Neither can be bound to names.
FOR_ANY_NAME = tuple(Permission(each, ("list", "create")) for each in REGISTRATIONS)


def registration_questions(services: Iterable[tuple[str, str]], namespaces: Sequence[str]) -> list[Question]:
    """All that an agent asks for to register services.

    Args:
        services: namespace and name of those that are known already.
        namespaces: where there may be others.
    """
    asked = [
        Question(each, verb, namespace, service_name(name))
        for namespace, name in services
        for each in FOR_NAMED
        for verb in each.verbs
    ]
    asked += [
        Question(each, verb, namespace, "")
        for namespace in namespaces
        for each in FOR_ANY_NAME
        for verb in each.verbs
    ]
    return asked


def registration_manifests(
    node: str, services: Sequence[tuple[str, str]], *, account: str, user: str, subject: JsonObject
) -> Iterator[JsonObject]:
    """What lets one node register these services.

    Args:
        node: the name of its FleetNode.
        services: namespace and name of InferenceServices.
        account: what its objects are named after.
        user: the name by which the API server knows it.
        subject: the same as a binding spells it.
    """
    labels = {NODE_LABEL: node}
    for namespace in sorted({namespace for namespace, _ in services}):
        names = sorted({service_name(name) for place, name in services if place == namespace})
        metadata = {"name": f"{account}:registrations", "namespace": namespace, "labels": labels}
        rules = [_rule(each, names) for each in FOR_NAMED + FOR_LEFT] + [_rule(each) for each in FOR_ANY_NAME]
        yield {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
        yield {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": metadata["name"]},
            "subjects": [subject],
        }
    yield from _policy_of_names(f"{account}.registrations", labels, user, services)


def _rule(permission: Permission, names: Sequence[str] = ()) -> JsonObject:
    rule: JsonObject = {"apiGroups": [permission.resource.group], "resources": [permission.path]}
    rule["verbs"] = list(permission.verbs)
    return rule | ({"resourceNames": list(names)} if names else {})


def _policy_of_names(
    policy: str, labels: JsonObject, user: str, services: Sequence[tuple[str, str]]
) -> Iterator[JsonObject]:
    allowed = sorted(f"{namespace}/{service_name(name)}" for namespace, name in services)
    listed = ", ".join(f'"{each}"' for each in allowed)
    expression = f'object.metadata.namespace + "/" + object.metadata.name in [{listed}]'
    rules = [matched(each, ("CREATE", "UPDATE")) for each in REGISTRATIONS]
    yield {
        "apiVersion": POLICY,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": policy, "labels": labels},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "matchConditions": [
                {"name": "is-the-node", "expression": f'request.userInfo.username == "{user}"'}
            ],
            "validations": [
                {"expression": expression, "message": f"this node may register {', '.join(allowed)}"}
            ],
        },
    }
    yield {
        "apiVersion": POLICY,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": policy, "labels": labels},
        "spec": {"policyName": policy, "validationActions": ["Deny"]},
    }


def matched(resource: Any, operations: Sequence[str]) -> JsonObject:
    """Writes of the objects of a kind themselves, as a policy names them."""
    return {
        "apiGroups": [resource.group],
        "apiVersions": ["*"],
        "operations": list(operations),
        "resources": [resource.plural],
    }


def asks_as(name: str, prefixes: Sequence[str]) -> str:
    """CEL: the node of that name asks, by whichever of its credentials.

    Args:
        name: CEL, too.
        prefixes: what the names of nodes' users begin with.
    """
    names = ", ".join(f'"{each}" + {name}' for each in prefixes)
    return f"request.userInfo.username in [{names}]"


def registration_rules() -> list[JsonObject]:
    """What the policy for all nodes looks at."""
    writes = ("CREATE", "UPDATE", "DELETE")
    return [*(matched(each, writes) for each in REGISTRATIONS), matched(ENDPOINTS, writes)]


def registration_validations(prefixes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """CEL expressions that must be true of each node's writes, and what is said where they are not.

    They are the words of the embedded plane's `registration_limits`.

    Args:
        prefixes: what the names of nodes' users begin with.
    """
    plurals = ", ".join(f'"{each.plural}"' for each in REGISTRATIONS)
    other = f"!(request.resource.resource in [{plurals}])"
    is_delete, is_create = 'request.operation == "DELETE"', 'request.operation == "CREATE"'
    yield (
        f"""{other} || (({is_delete} || {_is_of_user("object", prefixes)}) &&
        ({is_create} || {_is_of_user("oldObject", prefixes)}))""",
        "it is no registration of this node",
    )
    for name in ("finalizers", "ownerReferences"):
        yield (
            f"{other} || {is_delete} || !has(object.metadata.{name}) || size(object.metadata.{name}) == 0",
            f"a registration has no metadata.{name}",
        )
    yield (
        f"""request.resource.resource != "{ENDPOINT_SLICES.plural}" || {is_delete} ||
        (has(object.metadata.labels) && "{SERVICE_NAME}" in object.metadata.labels &&
        object.metadata.labels["{SERVICE_NAME}"] == object.metadata.name)""",
        "a slice is that of the Service of its own name",
    )
    yield (
        f"""request.resource.resource != "{SERVICES.plural}" || {is_delete} || !has(object.spec) ||
        ((!has(object.spec.type) || object.spec.type == "ClusterIP") &&
        (!has(object.spec.selector) || size(object.spec.selector) == 0) &&
        (!has(object.spec.externalIPs) || size(object.spec.externalIPs) == 0) &&
        (!has(object.spec.externalName) || object.spec.externalName == ""))""",
        "a Service of a registration is a plain ClusterIP one",
    )
    yield (
        f"""request.resource.resource != "{ENDPOINTS.plural}" ||
        ({is_delete} && {_is_managed("oldObject")})""",
        "a node deletes the Endpoints that a metal-agent has left, and writes none",
    )


def _is_managed(each: str) -> str:
    labels = f"{each}.metadata.labels"
    return f"""(has({labels}) && "{MANAGED_BY}" in {labels} && {labels}["{MANAGED_BY}"] == "{MANAGER}")"""


def _is_of_user(each: str, prefixes: Sequence[str]) -> str:
    labels = f"{each}.metadata.labels"
    owner = f'{labels}["{NODE_LABEL}"]'
    return f"""({_is_managed(each)} && "{NODE_LABEL}" in {labels} && {asks_as(owner, prefixes)})"""

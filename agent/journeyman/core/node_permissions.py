"""What an agent needs to be allowed on a cluster: the one list behind manifests and preflight."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from journeyman.model.resources import (
    AGENT_RELEASES,
    AGENTIC_TASKS,
    AGENTS,
    CERTIFICATE_REQUESTS,
    FLEET_NODES,
    INFERENCE_SERVICES,
    MODELS,
    Resource,
)

READING = ("get", "list", "watch")


@dataclass(frozen=True)
class Permission:
    """Verbs on one resource.

    Attributes:
        resource: which.
        verbs: as RBAC spells them.
        subresource: `status`, or empty.
        own: whether they are for the object alone that has the node's name.
    """

    resource: Resource
    verbs: tuple[str, ...]
    subresource: str = ""
    own: bool = False

    @property
    def path(self) -> str:
        """As the `resources` of a rule spell it."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural


# A POST names no object yet, so RBAC cannot bind it to one; the admission policy does.
FOR_ANY_NODE = (
    Permission(FLEET_NODES, ("create",)),
    Permission(AGENT_RELEASES, READING),
)
FOR_OWN_NODE = (
    Permission(FLEET_NODES, ("get", "update", "patch", "delete"), own=True),
    Permission(FLEET_NODES, ("get", "update", "patch"), "status", own=True),
)
FOR_TASKS = (
    Permission(AGENTIC_TASKS, READING),
    Permission(AGENTIC_TASKS, ("get", "update", "patch"), "status"),
    Permission(AGENTS, READING),
)
# For nodes that serve what the fleet asks for; which services are theirs, the admission policy says.
FOR_SERVICES = (
    Permission(INFERENCE_SERVICES, READING),
    Permission(INFERENCE_SERVICES, ("patch",), "status"),
    Permission(MODELS, READING),
)
# For a node that speaks by a client certificate, which it renews; what is in it is for the approver to judge.
FOR_CERTIFICATES = (Permission(CERTIFICATE_REQUESTS, ("create", "get")),)
ALL = (*FOR_ANY_NODE, *FOR_OWN_NODE, *FOR_TASKS)


@dataclass(frozen=True)
class Question:
    """One permission as a SelfSubjectAccessReview asks for it."""

    permission: Permission
    verb: str
    namespace: str
    name: str

    def to_wire(self) -> dict[str, object]:
        """The review to POST."""
        attributes = {
            "verb": self.verb,
            "group": self.permission.resource.group,
            "version": self.permission.resource.version,
            "resource": self.permission.resource.plural,
            "subresource": self.permission.subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        asked = {key: value for key, value in attributes.items() if value}
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.permission.path}{f' {self.name}' if self.name else ''}{where}"


def questions(node: str, namespace: str, permissions: Iterable[Permission] = ALL) -> list[Question]:
    """All that an agent of that node asks for.

    Args:
        node: the name of its FleetNode.
        namespace: of its tasks, or of its services.
        permissions: for which of them.
    """
    return [
        Question(each, verb, namespace if each.resource.namespaced else "", node if each.own else "")
        for each in permissions
        for verb in each.verbs
    ]

"""Takes back what a node has registered: for its agent, and for a node that leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Collection as Several

from journeyman.core.registration import is_of_node
from journeyman.errors import NotFoundError
from journeyman.model.registration import MANAGED_BY, MANAGER, NODE_LABEL
from journeyman.model.resources import ENDPOINT_SLICES, SERVICES, Resource
from journeyman.ports import Collection, ControlPlane, Document

FORMAT_VERSION = 1
Name = tuple[str, str]
# The slice first, so that nothing is sent to a service that is about to go.
KINDS = (ENDPOINT_SLICES, SERVICES)


def of_namespace(resource: Resource, namespace: str) -> Collection:
    """All objects of that kind there."""
    return Collection(resource.group, resource.version, resource.plural, namespace)


def namespaces_in(memory: Document) -> set[str]:
    """In which namespaces there may be registrations of this host."""
    found = memory.load() or {}
    return set(found.get("namespaces", ())) if found.get("format") == FORMAT_VERSION else set()


def remember(memory: Document, namespaces: Several[str]) -> None:
    """Puts down in which namespaces there may be some.  Raises HostError."""
    memory.save({"format": FORMAT_VERSION, "namespaces": sorted(namespaces)})


async def withdraw(
    plane: ControlPlane, node: str, namespaces: Several[str], *, but: Several[Name] = ()
) -> list[str]:
    """Deletes the registrations of a node.

    Args:
        plane: the control plane.
        node: the name of its FleetNode.
        namespaces: where they are looked for.
        but: namespace and name of those that stay.

    Returns:
        What was deleted, such as `Service default/coder`.

    Raises:
        ControlPlaneError: they cannot be listed or deleted; some may be gone by then.
    """
    gone = []
    for resource in KINDS:
        for namespace in namespaces:
            collection = of_namespace(resource, namespace)
            marks = f"{MANAGED_BY}={MANAGER},{NODE_LABEL}={node}"
            for found in (await plane.list(collection, label_selector=marks)).items:
                name = str(found["metadata"]["name"])
                if (namespace, name) in but or not is_of_node(found, node):
                    continue
                with contextlib.suppress(NotFoundError):
                    await plane.delete(collection.named(name))
                gone.append(f"{resource.kind} {namespace}/{name}")
    return gone

"""What a request's path names: the URL grammar of the Kubernetes API."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman_plane.model.resource import Registry, Resource
from journeyman_plane.ports import Key


@dataclass(frozen=True)
class Target:
    """A collection, an object or a subresource of it.

    Attributes:
        resource: what kind of thing.
        namespace: empty for cluster-scoped kinds and for "all namespaces".
        name: empty for a collection.
        subresource: empty for the object itself.
    """

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Where the object is kept."""
        return Key(self.resource.group, self.resource.plural, self.namespace, self.name)


def parse(path: str, registry: Registry) -> Target | None:
    """The target of `/api/v1/...` or `/apis/GROUP/VERSION/...`; None where nothing is served."""
    parts = path.strip("/").split("/")
    if parts[:1] == ["api"] and len(parts) > 1:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 2:  # noqa: PLR2004  # group and version
        group, version, *rest = parts[1:]
    else:
        return None
    namespace = ""
    # /namespaces/NAME is the namespace itself; one part more, and it is what lies in it.
    if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    return _target(registry, (group, version), namespace, rest)


def _target(
    registry: Registry, group_version: tuple[str, str], namespace: str, rest: list[str]
) -> Target | None:
    if not 1 <= len(rest) <= 3:  # noqa: PLR2004  # plural, name, subresource
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    resource = registry.find(*group_version, plural)
    if resource is None or (namespace and not resource.namespaced):
        return None
    if resource.namespaced and not namespace and name:
        return None
    if subresource and subresource not in resource.subresources:
        return None
    return Target(resource, namespace, name, subresource)

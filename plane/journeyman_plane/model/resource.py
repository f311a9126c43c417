"""What the plane knows about each resource that it serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: the heading; kubectl prints it in capitals.
        type: string, integer, number, boolean, date (printed as an age) or count (of the members).
        path: a JSONPath, of the subset that `core.jsonpath` reads.
        priority: columns above 0 are shown by `-o wide` only.
    """

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""


AGE = Column("Age", "date", ".metadata.creationTimestamp", 0, "Time since the object was created.")


@dataclass(frozen=True)
class Resource:
    """One resource: its names, scope, schema and how it is printed.

    Attributes:
        group: the API group, empty for the core group.
        subresources: those that are served below an object; `status` splits the writes of an object.
        schema: the OpenAPI v3 schema of the whole object, in the structural form of Kubernetes.
        custom: whether it comes from a CustomResourceDefinition.
        field_labels: fields that a field selector may name, beside metadata.name and metadata.namespace.
    """

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    schema: Mapping[str, Any]
    short_names: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    columns: tuple[Column, ...] = (AGE,)
    custom: bool = True
    field_labels: frozenset[str] = frozenset()

    @property
    def api_version(self) -> str:
        """The group and version, as objects spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The plural and the group, as messages spell it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        """Whether writes to the object leave its status alone, and writes to its status the rest."""
        return "status" in self.subresources


@dataclass(frozen=True)
class Registry:
    """All resources, in the order in which discovery names them."""

    resources: tuple[Resource, ...]
    _by_place: dict[tuple[str, str, str], Resource] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {(each.group, each.version, each.plural): each for each in self.resources}
        object.__setattr__(self, "_by_place", places)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at that place, or None."""
        return self._by_place.get((group, version, plural))

    def group_versions(self) -> Iterator[tuple[str, str]]:
        """Each group with its version, once."""
        yield from dict.fromkeys((each.group, each.version) for each in self.resources)

    def within(self, group: str, version: str) -> list[Resource]:
        """The resources of a group and version; empty where there is no such group."""
        return [each for each in self.resources if (each.group, each.version) == (group, version)]

    def split_resources(self) -> frozenset[tuple[str, str]]:
        """(group, plural) of the resources with a status subresource."""
        return frozenset((each.group, each.plural) for each in self.resources if each.has_status)


def resources_of(definitions: Iterable[Mapping[str, Any]]) -> Iterator[Resource]:
    """The resources that CustomResourceDefinitions describe, one for each served version."""
    for definition in definitions:
        spec = definition["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            if version["served"]:
                yield Resource(
                    group=spec["group"],
                    version=version["name"],
                    plural=names["plural"],
                    singular=names["singular"],
                    kind=names["kind"],
                    namespaced=spec["scope"] == "Namespaced",
                    schema=version["schema"]["openAPIV3Schema"],
                    short_names=tuple(names.get("shortNames", ())),
                    # The scale subresource is declared for real API servers; the plane does not serve it.
                    subresources=frozenset(version.get("subresources", {})) & {"status"},
                    columns=tuple(_column(each) for each in version.get("additionalPrinterColumns", ()))
                    or (AGE,),
                )


def _column(definition: Mapping[str, Any]) -> Column:
    return Column(
        name=definition["name"],
        type=definition["type"],
        path=definition["jsonPath"],
        priority=definition.get("priority", 0),
        description=definition.get("description", ""),
    )

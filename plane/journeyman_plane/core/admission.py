"""What a proposed object must pass before it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from journeyman_plane.core.base64_text import with_encoded_strings
from journeyman_plane.core.metadata import metadata_causes
from journeyman_plane.core.schema import ObjectSchema
from journeyman_plane.errors import Cause, RequestError, SchemaError
from journeyman_plane.model.resource import Registry, Resource


@dataclass(frozen=True)
class Admission:
    """Decides over proposed objects, with the schemas of all resources compiled once."""

    registry: Registry
    _schemas: dict[tuple[str, str], ObjectSchema] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schemas = {(each.group, each.plural): ObjectSchema(each.schema) for each in self.registry.resources}
        object.__setattr__(self, "_schemas", schemas)

    def admit(
        self, resource: Resource, proposed: Mapping[str, Any], *, strict: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """The object as it may be stored, and a warning for each unknown field that was dropped.

        Args:
            resource: what kind of object it is.
            proposed: the whole object, after a patch was applied.
            strict: refuse unknown fields, as `fieldValidation=Strict` asks for.

        Raises:
            RequestError: 400 for another kind of object, and for unknown fields where that is strict.
            SchemaError: 422 with all broken fields.
        """
        whole = _typed(resource, proposed)
        if resource.plural == "secrets":
            whole = with_encoded_strings(whole)
        schema = self._schemas[resource.group, resource.plural]
        pruned, dropped = schema.prune(whole)
        warnings = [f'unknown field "{path}"' for path in dropped]
        if strict and warnings:
            message = f"strict decoding error: {', '.join(warnings)}"
            raise RequestError(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"{message}",
                status=400,
                reason="BadRequest",
            )
        completed = schema.default(pruned)
        causes = metadata_causes(completed["metadata"]) + schema.validate(completed)
        if causes:
            raise SchemaError(resource.kind, resource.group, completed["metadata"].get("name", ""), causes)
        return completed, warnings


def _typed(resource: Resource, proposed: Mapping[str, Any]) -> dict[str, Any]:
    """The object with apiVersion and kind, which must be those of the resource where they are given."""
    if not isinstance(proposed.get("metadata", {}), Mapping):
        raise RequestError("metadata must be an object", status=400, reason="BadRequest")
    for name, right in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        given = proposed.get(name, right)
        if given == right:
            continue
        if name == "kind" and resource.custom:
            # To Kubernetes the kind of a custom object is one of its fields.
            cause = Cause("kind", "FieldValueInvalid", f"Invalid value: must be {right}")
            raise SchemaError(
                str(given), resource.group, proposed.get("metadata", {}).get("name", ""), [cause]
            )
        raise RequestError(
            f"the {name} in the body ({given}) does not match that of the URL ({right})",
            status=400,
            reason="BadRequest",
        )
    head = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}}
    return head | dict(proposed)

"""The OpenAPI documents, made from the schemas of the resources.

kubectl reads version 3 for `explain`, and to learn that the server validates fields by itself.
"""

from __future__ import annotations

from typing import Any

from journeyman_plane.model.resource import Registry, Resource

JsonObject = dict[str, Any]
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_OBJECT_META: JsonObject = {
    "description": "What every object has.",
    "type": "object",
    "properties": {
        "name": _TEXT, "generateName": _TEXT, "namespace": _TEXT, "uid": _TEXT, "resourceVersion": _TEXT,
        "generation": {"type": "integer", "format": "int64"},
        "creationTimestamp": {"type": "string", "format": "date-time"},
        "deletionTimestamp": {"type": "string", "format": "date-time"},
        "labels": _TEXTS, "annotations": _TEXTS,
        "finalizers": {"type": "array", "items": _TEXT},
        "ownerReferences": {"type": "array", "items": {"type": "object"}},
    },
}  # fmt: skip


def index(registry: Registry) -> JsonObject:
    """`/openapi/v3`: where the document of each group and version is."""
    paths = [_root(group, version) for group, version in registry.group_versions()]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def version_3(registry: Registry, path: str) -> JsonObject | None:
    """`/openapi/v3/PATH`: the document of one group and version; None where there is none."""
    for group, version in registry.group_versions():
        if _root(group, version) == path:
            resources = registry.within(group, version)
            schemas = {_name(each): _schema(each, "#/components/schemas/") for each in resources}
            return {
                "openapi": "3.0.0",
                "info": {"title": "Journeyman", "version": version},
                "paths": {path: item for each in resources for path, item in _paths(each).items()},
                "components": {"schemas": {_META: _OBJECT_META} | schemas},
            }
    return None


def version_2(registry: Registry) -> JsonObject:
    """`/openapi/v2`: the definitions of all resources, without paths."""
    definitions = {_name(each): _schema(each, "#/definitions/") for each in registry.resources}
    return {
        "swagger": "2.0",
        "info": {"title": "Journeyman", "version": "v1"},
        "paths": {},
        "definitions": {_META: _OBJECT_META} | definitions,
    }


def _root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _name(resource: Resource) -> str:
    """The name of a definition: the group's labels in reverse, as Kubernetes has it."""
    group = ".".join(reversed(resource.group.split("."))) if resource.group else "io.k8s.api.core"
    return f"{group}.{resource.version}.{resource.kind}"


def _kind(resource: Resource) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _schema(resource: Resource, prefix: str) -> JsonObject:
    properties = resource.schema.get("properties", {}) | {"metadata": {"$ref": f"{prefix}{_META}"}}
    return {
        **resource.schema,
        "properties": properties,
        "x-kubernetes-group-version-kind": [_kind(resource)],
    }


def _paths(resource: Resource) -> JsonObject:
    """The one path that kubectl looks for: the PATCH of an object, with its query parameters."""
    root = f"/{_root(resource.group, resource.version)}"
    space = "/namespaces/{namespace}" if resource.namespaced else ""
    parameters = [
        {"name": name, "in": "query", "schema": _TEXT}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    operation = {
        "parameters": parameters,
        "requestBody": {"content": {"application/merge-patch+json": {"schema": {"type": "object"}}}},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": _kind(resource),
    }
    return {f"{root}{space}/{resource.plural}/{{name}}": {"patch": operation}}

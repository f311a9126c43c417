"""Discovery: which groups, versions and resources there are."""

from __future__ import annotations

from typing import Any

from journeyman_plane.model.resource import Registry, Resource

JsonObject = dict[str, Any]
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
SUBRESOURCE_VERBS = ["get", "patch", "update"]


def core_versions() -> JsonObject:
    """`/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(registry: Registry) -> JsonObject:
    """`/apis`."""
    named = [group for group, _ in registry.group_versions() if group]
    groups = [_group(registry, group) for group in named]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> JsonObject | None:
    """`/apis/GROUP`, or None where there is no such group."""
    if not name or name not in {group for group, _ in registry.group_versions()}:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1"} | _group(registry, name)


def resource_list(registry: Registry, group_name: str, version: str) -> JsonObject | None:
    """`/api/v1` and `/apis/GROUP/VERSION`, or None where there is no such version."""
    found = registry.within(group_name, version)
    if not found:
        return None
    listed = [entry for resource in found for entry in _entries(resource)]
    api_version = found[0].api_version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": listed}


def _group(registry: Registry, name: str) -> JsonObject:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version}
        for group, version in registry.group_versions()
        if group == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _entries(resource: Resource) -> list[JsonObject]:
    entry = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    below = [
        {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": SUBRESOURCE_VERBS,
        }
        for name in sorted(resource.subresources)
    ]
    return [entry, *below]

"""The wire types and the CustomResourceDefinitions say the same, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from journeyman.model import (
    agent,
    agent_release,
    agentic_task,
    fleet_node,
    inference,
    model_profile,
    resources,
)
from journeyman.model.meta import WireObject

CRDS = Path(__file__).resolve().parents[3] / "plane" / "journeyman_plane" / "crds"
TYPES: dict[resources.Resource, type[WireObject]] = {
    resources.FLEET_NODES: fleet_node.FleetNode,
    resources.AGENTIC_TASKS: agentic_task.AgenticTask,
    resources.AGENTS: agent.AgentPersona,
    resources.AGENT_RELEASES: agent_release.AgentRelease,
    resources.MODEL_PROFILES: model_profile.ModelProfile,
    resources.INFERENCE_SERVICES: inference.InferenceService,
    resources.MODELS: inference.Model,
}
CONSTRAINTS = ("type", "enum", "pattern", "minimum", "minLength", "maxLength", "minItems")

# Where we differ on purpose: the schema leaves it open, and another value could not be acted upon.
STRICTER = {
    "spec.selector.matchExpressions[].operator enum",
    "status.targetNodes minimum",
    "status.updatedNodes minimum",
}


def resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Follows references, and takes `X or null` for X, as null means absent."""
    if "$ref" in schema:
        return resolved(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "anyOf" in schema:
        (only,) = (option for option in schema["anyOf"] if option.get("type") != "null")
        return resolved(only, definitions)
    if "const" in schema:
        return {**schema, "enum": [schema["const"]]}
    return schema


def constraints(path: str, ours: dict[str, Any], crd: dict[str, Any]) -> Iterator[str]:
    """Yields each constraint of one field that differs."""
    for key in CONSTRAINTS:
        mine, theirs = ours.get(key), crd.get(key)
        if key == "enum" and mine and theirs:
            mine, theirs = set(mine), set(theirs)
        if mine != theirs and f"{path} {key}" not in STRICTER:
            yield f"{path} {key}: ours {mine}, the schema's {theirs}"
    missing = set(ours.get("required", ())) - set(crd.get("required", ()))
    if missing and "properties" in crd:
        yield f"{path}: we require {missing}, the schema does not"


def differences(
    path: str, ours: dict[str, Any], crd: dict[str, Any], definitions: dict[str, Any]
) -> Iterator[str]:
    """Yields what differs at a field and below it, and each field of ours that is not documented."""
    ours = resolved(ours, definitions)
    yield from constraints(path, ours, crd)
    if crd.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name, field in ours.get("properties", {}).items():
        if name in crd.get("properties", {}):
            yield from differences(f"{path}.{name}", field, crd["properties"][name], definitions)
        else:
            yield f"{path}.{name} is not documented"
    if "items" in ours:
        yield from differences(f"{path}[]", ours["items"], crd.get("items", {}), definitions)


@pytest.mark.parametrize("resource", TYPES, ids=lambda resource: resource.kind)
def test_a_wire_type_agrees_with_its_schema(resource: resources.Resource) -> None:
    """Enums, patterns and limits are the same on both sides, and we know no field that the schema lacks."""
    definition = yaml.safe_load((CRDS / f"{resource.plural}.yaml").read_text())["spec"]
    schema = definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    ours = TYPES[resource].model_json_schema(by_alias=True)
    found = [
        line
        for part in ("spec", "status")
        if part in ours["properties"]
        for line in differences(part, ours["properties"][part], schema[part], ours["$defs"])
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("resource", TYPES, ids=lambda resource: resource.kind)
def test_a_resource_is_served_where_its_definition_says(resource: resources.Resource) -> None:
    """Group, version, plural, kind and scope of our constants are those of the definition."""
    definition = yaml.safe_load((CRDS / f"{resource.plural}.yaml").read_text())["spec"]
    assert definition["group"] == resource.group
    assert definition["versions"][0]["name"] == resource.version
    assert definition["names"]["kind"] == resource.kind
    assert (definition["scope"] == "Namespaced") is resource.namespaced
    fields = TYPES[resource].model_fields
    assert fields["api_version"].default == resource.api_version
    assert fields["kind"].default == resource.kind

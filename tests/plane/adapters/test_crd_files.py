"""The CustomResourceDefinitions that we ship."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from journeyman_plane.adapters.crd_files import custom_resource_definitions, load_registry
from journeyman_plane.core import discovery, openapi
from journeyman_plane.core.jsonpath import first

DEFINITIONS = {each["spec"]["names"]["kind"]: each for each in custom_resource_definitions()}
# contract: kind -> (resource, scope, short name, subresources)
CONTRACT = {
    "FleetNode": ("fleetnodes", "Cluster", "fn", {"status"}),
    "AgenticTask": ("agentictasks", "Namespaced", "at", {"status"}),
    "Agent": ("agents", "Namespaced", "ag", {"status"}),
    "Workload": ("workloads", "Namespaced", "wl", {"status"}),
    "AgentRelease": ("agentreleases", "Cluster", "agr", {"status"}),
    "ModelProfile": ("modelprofiles", "Cluster", "mp", {"status"}),
    "InferenceService": ("inferenceservices", "Namespaced", "isvc", {"status", "scale"}),
    "Model": ("models", "Namespaced", "mdl", {"status"}),
}


def test_all_kinds_of_the_contract_are_there() -> None:
    """Each kind has the resource name, scope, short name and subresources of the contract."""
    found = {}
    for kind, definition in DEFINITIONS.items():
        spec = definition["spec"]
        (version,) = spec["versions"]
        assert definition["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
        (short,) = spec["names"]["shortNames"]
        found[kind] = (spec["names"]["plural"], spec["scope"], short, set(version["subresources"]))
    assert found == CONTRACT


def schemas(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The schema and all below it."""
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from schemas(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from schemas(schema[word], f"{path}[]")


@pytest.mark.parametrize("kind", CONTRACT)
def test_schemas_are_structural(kind: str) -> None:
    """A real API server takes them: every node has a type or is free, and each keyword is in the subset."""
    allowed = {
        "type", "description", "properties", "required", "items", "additionalProperties", "enum", "pattern",
        "format", "minimum", "maximum", "minLength", "maxLength", "minItems", "default",
        "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
    }  # fmt: skip
    root = DEFINITIONS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for path, schema in schemas(root, kind):
        assert "type" in schema or schema.get("x-kubernetes-preserve-unknown-fields"), path
        assert set(schema) <= allowed, path
        assert not {"properties", "additionalProperties"} <= set(schema), path
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            assert key in schema["items"]["required"], path
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), path


@pytest.mark.parametrize("kind", CONTRACT)
def test_printer_columns_can_be_read(kind: str) -> None:
    """Each column's path is one that we, too, can read."""
    for column in DEFINITIONS[kind]["spec"]["versions"][0]["additionalPrinterColumns"]:
        assert first(column["jsonPath"], {}) is None


def test_discovery_names_each_resource_once() -> None:
    """Groups, versions and resources of discovery are those of the registry."""
    registry = load_registry()
    named = {
        (each["name"], each["preferredVersion"]["version"])
        for each in discovery.group_list(registry)["groups"]
    }
    assert named == {
        ("foreman.llmkube.dev", "v1alpha1"),
        ("inference.llmkube.dev", "v1alpha1"),
        ("discovery.k8s.io", "v1"),
    }
    listed = discovery.resource_list(registry, "foreman.llmkube.dev", "v1alpha1")
    assert listed is not None
    names = [each["name"] for each in listed["resources"]]
    assert len(names) == len(set(names))
    assert {"fleetnodes", "fleetnodes/status"} <= set(names)
    assert discovery.group(registry, "nowhere.example") is None
    assert discovery.resource_list(registry, "nowhere.example", "v1") is None


def test_openapi_resolves() -> None:
    """Each document of the index exists, and every reference in it leads somewhere."""
    registry = load_registry()
    for path in openapi.index(registry)["paths"]:
        document = openapi.version_3(registry, path)
        assert document is not None
        known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
        assert set(references(document)) <= known
    two = openapi.version_2(registry)
    assert set(references(two)) <= {f"#/definitions/{name}" for name in two["definitions"]}
    assert openapi.version_3(registry, "apis/nowhere.example/v1") is None


def references(document: Any) -> Iterator[str]:
    """Every $ref in a document."""
    if isinstance(document, dict):
        if "$ref" in document:
            yield document["$ref"]
        for inner in document.values():
            yield from references(inner)
    elif isinstance(document, list):
        for inner in document:
            yield from references(inner)

"""The URL grammar."""

from __future__ import annotations

import pytest

from journeyman_plane.adapters.crd_files import load_registry
from journeyman_plane.core.paths import parse

F = "/apis/foreman.llmkube.dev/v1alpha1"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/namespaces", ("namespaces", "", "", "")),
        ("/api/v1/namespaces/lab", ("namespaces", "", "lab", "")),
        ("/api/v1/namespaces/lab/configmaps", ("configmaps", "lab", "", "")),
        ("/api/v1/namespaces/lab/configmaps/x", ("configmaps", "lab", "x", "")),
        ("/api/v1/configmaps", ("configmaps", "", "", "")),
        (f"{F}/fleetnodes", ("fleetnodes", "", "", "")),
        (f"{F}/fleetnodes/a/status", ("fleetnodes", "", "a", "status")),
        (f"{F}/namespaces/lab/agentictasks/t/status", ("agentictasks", "lab", "t", "status")),
    ],
)
def test_what_is_served(path: str, target: tuple[str, str, str, str]) -> None:
    """A path names a resource, a namespace, an object and a subresource."""
    found = parse(path, load_registry())
    assert found is not None
    assert (found.resource.plural, found.namespace, found.name, found.subresource) == target


@pytest.mark.parametrize(
    "path",
    [
        "/", "/api", "/api/v1", "/apis", "/apis/foreman.llmkube.dev", F, "/api/v1/pods", "/api/v2/namespaces",
        f"{F}/fleetnodes/a/scale", f"{F}/fleetnodes/a/status/more", f"{F}/namespaces/lab/fleetnodes",
        f"{F}/agentictasks/t", "/api/v1/namespaces/lab/configmaps/x/status",
        "/apis/foreman.llmkube.dev/v1/agents",
    ],
)  # fmt: skip
def test_what_is_not_served(path: str) -> None:
    """Anything else has no target: other groups, wrong scopes, subresources that a kind does not have."""
    assert parse(path, load_registry()) is None

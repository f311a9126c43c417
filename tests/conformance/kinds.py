"""Objects of kinds that no controller touches, so that they stay as the suite writes them."""

from __future__ import annotations

from typing import Any

FOREMAN, INFERENCE = "/apis/foreman.llmkube.dev/v1alpha1", "/apis/inference.llmkube.dev/v1alpha1"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
MODELS = f"{INFERENCE}/namespaces/default/models"
PROFILES = f"{FOREMAN}/modelprofiles"
NODES = f"{FOREMAN}/fleetnodes"
SERVICES = f"{INFERENCE}/namespaces/default/inferenceservices"
TASKS = f"{FOREMAN}/namespaces/default/agentictasks"


def configmap(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    """A ConfigMap."""
    metadata: dict[str, Any] = {"name": name} | ({"labels": labels} if labels else {})
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return body | ({"data": data} if data else {})


def model(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A Model: namespaced, with a status."""
    metadata: dict[str, Any] = {"name": name} | ({"labels": labels} if labels else {})
    body = {"apiVersion": "inference.llmkube.dev/v1alpha1", "kind": "Model", "metadata": metadata}
    return body | {"spec": {"source": "https://models.example/a.gguf"} | spec}


def profile(name: str, **spec: Any) -> dict[str, Any]:
    """A ModelProfile: of the whole cluster."""
    body = {"apiVersion": "foreman.llmkube.dev/v1alpha1", "kind": "ModelProfile", "metadata": {"name": name}}
    return body | {"spec": spec}


def condition(kind: str, reason: str = "Tried") -> dict[str, str]:
    """A condition with all that it needs."""
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-11-30T12:00:00Z",
    }

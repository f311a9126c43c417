"""InferenceServices and Models for tests, as people apply them."""

from __future__ import annotations

from typing import Any

from journeyman.model.inference import PLACED_ON, InferenceService, Model

API = "inference.llmkube.dev/v1alpha1"
SOURCE = "https://models.example/tiny.gguf"


def model_object(name: str = "weights", **spec: Any) -> dict[str, Any]:
    """A Model to POST."""
    given = {"source": SOURCE, "format": "gguf", "hardware": {"accelerator": "cpu"}}
    return {
        "apiVersion": API,
        "kind": "Model",
        "metadata": {"name": name, "namespace": "default"},
        "spec": given | spec,
    }


def service_object(name: str = "chat", node: str | None = "mine", **spec: Any) -> dict[str, Any]:
    """An InferenceService to POST, placed on that node unless it is None."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    if node is not None:
        metadata["annotations"] = {PLACED_ON: node}
    return {
        "apiVersion": API,
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": {"modelRef": "weights"} | spec,
    }


def service(name: str = "chat", node: str | None = "mine", **spec: Any) -> InferenceService:
    """The same as the agent reads it."""
    body = service_object(name, node, **spec)
    body["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "7", "generation": 1}
    return InferenceService.from_wire(body)


def model(name: str = "weights", **spec: Any) -> Model:
    """The same as the agent reads it."""
    return Model.from_wire(model_object(name, **spec))

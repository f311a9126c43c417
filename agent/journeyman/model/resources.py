"""The resources of the API as plain data: where a kind is served, and whether it has a namespace."""

from __future__ import annotations

from dataclasses import dataclass

FOREMAN_GROUP = "foreman.llmkube.dev"
INFERENCE_GROUP = "inference.llmkube.dev"
VERSION = "v1alpha1"


@dataclass(frozen=True)
class Resource:
    """One kind, and the path parts under which the API serves it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """`group/version`, or the bare version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


FLEET_NODES = Resource(FOREMAN_GROUP, VERSION, "fleetnodes", "FleetNode", namespaced=False)
AGENTIC_TASKS = Resource(FOREMAN_GROUP, VERSION, "agentictasks", "AgenticTask", namespaced=True)
AGENTS = Resource(FOREMAN_GROUP, VERSION, "agents", "Agent", namespaced=True)
AGENT_RELEASES = Resource(FOREMAN_GROUP, VERSION, "agentreleases", "AgentRelease", namespaced=False)
MODEL_PROFILES = Resource(FOREMAN_GROUP, VERSION, "modelprofiles", "ModelProfile", namespaced=False)
INFERENCE_SERVICES = Resource(
    INFERENCE_GROUP, VERSION, "inferenceservices", "InferenceService", namespaced=True
)
MODELS = Resource(INFERENCE_GROUP, VERSION, "models", "Model", namespaced=True)
SERVICES = Resource("", "v1", "services", "Service", namespaced=True)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", namespaced=True)
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", namespaced=True)
CERTIFICATE_REQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", namespaced=False
)

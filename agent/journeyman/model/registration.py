"""The marks of a registration: a Service and an EndpointSlice that say where a service is reached.

They are LLMKube's, but for the label of our node.
"""

from __future__ import annotations

MANAGED_BY, MANAGER = "llmkube.ai/managed-by", "metal-agent"
INFERENCE_SERVICE = "llmkube.ai/inference-service"
HEARTBEAT, AGENT_VERSION = "llmkube.ai/agent-heartbeat", "llmkube.ai/agent-version"
SERVICE_NAME = "kubernetes.io/service-name"
NODE_LABEL = "journeyman.dev/node"

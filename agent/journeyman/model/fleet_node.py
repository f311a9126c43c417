"""FleetNode: a machine as the control plane sees it."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

from pydantic import Field

from journeyman.model.meta import (
    Condition,
    ConditionStatus,
    Count,
    ObjectMeta,
    WireModel,
    WireObject,
    WireTime,
    find_condition,
)

HEARTBEAT_STALE_AFTER = timedelta(seconds=90)
DRAINING_REAPED_AFTER = timedelta(minutes=10)

INSTANCE_ANNOTATION = "journeyman.dev/instance"
MODELS_ANNOTATION = "journeyman.dev/models"
LABEL_AGENT = "journeyman.dev/agent"
LABEL_UPDATABLE = "journeyman.dev/updatable"
UPDATABLE = "Updatable"

SHA256_PATTERN = r"^[0-9a-f]{64}$"


class FleetNodePhase(StrEnum):
    """Whether the node takes work."""

    READY = "Ready"
    DRAINING = "Draining"
    NOT_READY = "NotReady"
    UNKNOWN = "Unknown"


class Accelerator(StrEnum):
    """What runs the models of a node."""

    METAL = "metal"
    CUDA = "cuda"
    VULKAN = "vulkan"
    NONE = "none"


class AgentKind(StrEnum):
    """The program that speaks for the node."""

    FOREMAN_AGENT = "foreman-agent"
    METAL_AGENT = "metal-agent"


class Capability(WireModel):
    """What the node can run; RAM in GiB, contexts in tokens."""

    accelerator: Accelerator | None = None
    total_ram_gb: Count = Field(default=0, alias="totalRAMGB")
    available_ram_gb: Count = Field(default=0, alias="availableRAMGB")
    installed_models: tuple[str, ...] = ()
    max_context_tokens: Count = 0
    tokens_per_second: Count = 0


class UpdateRequest(WireModel):
    """The release that the control plane wants the node to run."""

    target_version: str
    url: str
    sha256: str = Field(pattern=SHA256_PATTERN)


class FleetNodeSpec(WireModel):
    """What the agent says of the node when it registers it."""

    node_name: str = Field(min_length=1)
    tailscale_addr: str = ""
    roles: tuple[str, ...] = ()


class FleetNodeStatus(WireModel):
    """What agent and operator write about the node, each its own fields."""

    phase: FleetNodePhase | None = None
    last_heartbeat_time: WireTime | None = None
    capability: Capability = Field(default_factory=Capability)
    current_task: str = ""
    agent_version: str = ""
    agent_kind: AgentKind | None = None
    os: str = ""
    arch: str = ""
    update_request: UpdateRequest | None = None
    conditions: tuple[Condition, ...] = ()


class FleetNode(WireObject):
    """One machine of the fleet."""

    api_version: Literal["foreman.llmkube.dev/v1alpha1"] = "foreman.llmkube.dev/v1alpha1"
    kind: Literal["FleetNode"] = "FleetNode"
    metadata: ObjectMeta
    spec: FleetNodeSpec
    status: FleetNodeStatus = Field(default_factory=FleetNodeStatus)

    def heartbeat_is_stale(self, now: datetime) -> bool:
        """Whether the last heartbeat is more than 90 seconds old; a node that never beat is stale."""
        beat = self.status.last_heartbeat_time
        return beat is None or now - beat > HEARTBEAT_STALE_AFTER

    def is_schedulable(self, now: datetime) -> bool:
        """Whether the node may be given a task: phase Ready, and a fresh heartbeat to back it."""
        return self.status.phase is FleetNodePhase.READY and not self.heartbeat_is_stale(now)

    @property
    def is_updatable(self) -> bool:
        """Whether the node has not said, by label or by condition, that it cannot replace its program now."""
        condition = find_condition(self.status.conditions, UPDATABLE)
        said_no = condition is not None and condition.status is ConditionStatus.FALSE
        return self.metadata.labels.get(LABEL_UPDATABLE) != "false" and not said_no

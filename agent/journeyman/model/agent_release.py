"""AgentRelease: a version, its artifacts, and how it is rolled out over the fleet."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from journeyman.model.fleet_node import SHA256_PATTERN, AgentKind
from journeyman.model.meta import Condition, Count, ObjectMeta, WireModel, WireObject, WireTime


class ReleasePhase(StrEnum):
    """Where the rollout is."""

    PENDING = "Pending"
    AWAITING_APPROVAL = "AwaitingApproval"
    IN_PROGRESS = "InProgress"
    PAUSED = "Paused"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class NodeUpdatePhase(StrEnum):
    """Where the rollout is on one node."""

    PENDING = "Pending"
    UPDATING = "Updating"
    UPDATED = "Updated"
    FAILED = "Failed"


class NodeUpdateReason(StrEnum):
    """Why the rollout failed on one node."""

    NODE_UPDATE_TIMEOUT = "NodeUpdateTimeout"
    NO_MATCHING_ARTIFACT = "NoMatchingArtifact"


class ArtifactOS(StrEnum):
    """Operating systems that artifacts exist for."""

    DARWIN = "darwin"
    LINUX = "linux"


class ArtifactArch(StrEnum):
    """Architectures that artifacts exist for."""

    AMD64 = "amd64"
    ARM64 = "arm64"


class SelectorOperator(StrEnum):
    """How a requirement of a label selector compares."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class ReleaseArtifact(WireModel):
    """The file for one platform."""

    os: ArtifactOS
    arch: ArtifactArch
    url: str = Field(min_length=1)
    sha256: str = Field(pattern=SHA256_PATTERN)


class LabelRequirement(WireModel):
    """One requirement of a label selector."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether the labels meet it, as apimachinery decides: NotIn holds where the key is missing."""
        match self.operator:
            case SelectorOperator.EXISTS:
                return self.key in labels
            case SelectorOperator.DOES_NOT_EXIST:
                return self.key not in labels
            case SelectorOperator.IN:
                return labels.get(self.key) in self.values
            case SelectorOperator.NOT_IN:
                return labels.get(self.key) not in self.values


class LabelSelector(WireModel):
    """A Kubernetes LabelSelector; an empty one matches everything."""

    match_labels: dict[str, str] = Field(default_factory=dict)
    match_expressions: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: dict[str, str]) -> bool:
        """Whether the labels meet all requirements."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


class HealthGate(WireModel):
    """When an updated node counts as healthy, and when as lost; in seconds."""

    min_healthy_seconds: Count = 60
    timeout_seconds: Annotated[int, Field(ge=1)] = 600


class AgentReleaseSpec(WireModel):
    """What shall run where, and at what pace."""

    agent_kind: AgentKind
    version: str = Field(min_length=1)
    artifacts: tuple[ReleaseArtifact, ...] = ()
    selector: LabelSelector = Field(default_factory=LabelSelector)
    concurrency: Annotated[int, Field(ge=1)] = 1
    approved: bool = False
    paused: bool = False
    health_gate: HealthGate = Field(default_factory=HealthGate)

    def artifact_for(self, os: str, arch: str) -> ReleaseArtifact | None:
        """The artifact for that platform, or None if the release has none."""
        return next((item for item in self.artifacts if item.os == os and item.arch == arch), None)


class NodeUpdateStatus(WireModel):
    """How far one node has come; `last_transition_time` is the start of the soak once it is healthy."""

    name: str
    observed_version: str = ""
    phase: NodeUpdatePhase = NodeUpdatePhase.PENDING
    reason: str = ""
    dispatched_at: WireTime | None = None
    last_transition_time: WireTime | None = None
    message: str = ""


class AgentReleaseStatus(WireModel):
    """How far the rollout has come."""

    phase: ReleasePhase | None = None
    observed_generation: int = 0
    desired_version: str = ""
    target_nodes: Count = 0
    updated_nodes: Count = 0
    in_flight_nodes: tuple[str, ...] = ()
    node_statuses: tuple[NodeUpdateStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


class AgentRelease(WireObject):
    """One rollout."""

    api_version: Literal["foreman.llmkube.dev/v1alpha1"] = "foreman.llmkube.dev/v1alpha1"
    kind: Literal["AgentRelease"] = "AgentRelease"
    metadata: ObjectMeta
    spec: AgentReleaseSpec
    status: AgentReleaseStatus = Field(default_factory=AgentReleaseStatus)

"""Agent: the persona a task runs as.

Not to be confused with Journeyman's own agent, the daemon: on the wire an "Agent" is a role, a prompt,
a set of tools and their limits.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from journeyman.model.agentic_task import RequiredCapability
from journeyman.model.meta import Condition, Count, NameReference, ObjectMeta, WireModel, WireObject


class AgentRole(StrEnum):
    """What the persona is for."""

    CODER = "coder"
    VERIFIER = "verifier"
    REVIEWER = "reviewer"
    PLANNER = "planner"


class AgentProvider(StrEnum):
    """Where its model is served."""

    LOCAL = "local"
    CLOUD_PROXY = "cloud-proxy"


class ExecutionMode(StrEnum):
    """Where its tasks run: in the agent, or as a Job of the cluster."""

    IN_PROCESS = "InProcess"
    JOB = "Job"


class ContextStrategy(StrEnum):
    """How a long conversation is kept inside the model's context."""

    WINDOW = "window"
    SESSION = "session"


class SecretKeyReference(WireModel):
    """One key of a Secret of the same namespace."""

    name: str = ""
    key: str = ""


class ProviderConfig(WireModel):
    """The endpoint of a model that is served elsewhere."""

    base_url: str = Field(default="", alias="baseURL")
    model: str = ""
    api_key_secret_ref: SecretKeyReference | None = None


class Execution(WireModel):
    """How tasks of the persona are run."""

    mode: ExecutionMode = ExecutionMode.IN_PROCESS
    image: str = ""
    service_account_name: str = ""
    active_deadline_seconds: int = 3600
    resources: dict[str, Any] = Field(default_factory=dict)


class StuckLoopDetection(WireModel):
    """When a coding loop counts as stuck; zero means the built-in limit."""

    repeated_tool_threshold: Annotated[int, Field(ge=0, le=100)] = 0
    edit_free_turns_limit: Annotated[int, Field(ge=0, le=200)] = 0
    context_soft_cap: Count = 0
    context_hard_cap: Count = 0


class McpServer(WireModel):
    """A server of extra tools."""

    name: str
    transport: Literal["http"] = "http"
    url: str = ""
    headers: tuple[dict[str, Any], ...] = ()
    allowed_tools: tuple[str, ...] = ()


class McpConfig(WireModel):
    """Extra tools over the Model Context Protocol; `call_timeout` is a Go duration."""

    enabled: bool = False
    call_timeout: str = "30s"
    max_result_bytes: Count = 32768
    servers: tuple[McpServer, ...] = ()


class VisionConfig(WireModel):
    """Whether the persona is shown the images of a task."""

    enabled: bool = False
    max_image_bytes: Count = 4 * 1024 * 1024
    max_images: Count = 4


class AgentPersonaSpec(WireModel):
    """The persona's model, prompt, tools and limits.

    A zero in `max_output_tokens`, `context_window_tokens` or `observation_window_turns` means the
    operator's built-in value (8192, 32768 and 3).
    """

    role: AgentRole
    provider: AgentProvider = AgentProvider.LOCAL
    provider_config: ProviderConfig | None = None
    execution: Execution = Field(default_factory=Execution)
    model: str = ""
    inference_service_ref: NameReference | None = None
    system_prompt: str = ""
    temperature: str = Field(default="", pattern=r"^[0-2](\.[0-9]+)?$")
    max_turns: Annotated[int, Field(ge=1, le=500)] = 50
    max_envtest_iterations: Count | None = None
    max_retries: Annotated[int, Field(ge=0, le=20)] = 3
    max_output_tokens: Count = 0
    max_concurrent_tasks: Annotated[int, Field(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    context_window_tokens: Count = 0
    observation_window_turns: Annotated[int, Field(ge=0, le=50)] = 0
    context_strategy: ContextStrategy = ContextStrategy.WINDOW
    stuck_loop_detection: StuckLoopDetection | None = None
    model_profile_ref: NameReference | None = None
    request_timeout_seconds: Count = 3600
    request_turn_timeout_seconds: Count = 120
    bash_timeout_seconds: Count = 30
    tools: tuple[str, ...] = Field(default=(), min_length=1)
    required_capability: RequiredCapability | None = None
    mcp: McpConfig | None = None
    vision: VisionConfig | None = None


class AgentPersonaStatus(WireModel):
    """What the operator found out about the persona."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class AgentPersona(WireObject):
    """One persona; kind `Agent` on the wire."""

    api_version: Literal["foreman.llmkube.dev/v1alpha1"] = "foreman.llmkube.dev/v1alpha1"
    kind: Literal["Agent"] = "Agent"
    metadata: ObjectMeta
    spec: AgentPersonaSpec
    status: AgentPersonaStatus = Field(default_factory=AgentPersonaStatus)

    @property
    def runs_as_job(self) -> bool:
        """Whether its tasks run as Jobs of the cluster, and so need neither RAM nor model of a node."""
        return self.spec.execution.mode is ExecutionMode.JOB

    @property
    def model_name(self) -> str:
        """The name that must stand in a node's installedModels, or an empty string."""
        reference = self.spec.inference_service_ref
        return self.spec.model or (reference.name if reference else "")

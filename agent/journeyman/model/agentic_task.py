"""AgenticTask: one piece of work, from its submission to its verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from journeyman.model.meta import (
    Condition,
    Count,
    NameReference,
    ObjectMeta,
    WireModel,
    WireObject,
    WireTime,
)

CLAIM_EXPIRIES_ANNOTATION = "foreman.llmkube.dev/claim-expiries"
ALREADY_RESOLVED = "ALREADY-RESOLVED"
RESULT_SCHEMA_VERSION = "foreman.v1"


class TaskKind(StrEnum):
    """What sort of work it is."""

    ISSUE_FIX = "issue-fix"
    VERIFY = "verify"
    REVIEW = "review"
    FREEFORM = "freeform"
    INTEGRATE = "integrate"
    RECONCILE = "reconcile"


class RequiredAccelerator(StrEnum):
    """What a task asks of the accelerator of its node."""

    METAL = "metal"
    CUDA = "cuda"
    VULKAN = "vulkan"
    ANY = "any"


class GateLanguage(StrEnum):
    """Whose preset of result gates a repository uses."""

    GO = "go"
    PYTHON = "python"
    RUST = "rust"
    NODE = "node"
    GENERIC = "generic"


class WorkClass(StrEnum):
    """What a change touches, for the policy of self-given verdicts."""

    CODE_FIX = "code-fix"
    DOCS = "docs"
    PACKAGING = "packaging"
    CONFIG = "config"
    CI_POLICY = "ci-policy"
    RELEASE_POLICY = "release-policy"


class BranchStrategy(StrEnum):
    """How a revision starts from the branch that it revises."""

    RESET = "reset"
    REBASE = "rebase"


class TaskPhase(StrEnum):
    """Where the task is in its life."""

    PENDING = "Pending"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    VERIFYING = "Verifying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


IN_FLIGHT = frozenset({TaskPhase.SCHEDULED, TaskPhase.RUNNING, TaskPhase.VERIFYING})
TERMINAL = frozenset({TaskPhase.SUCCEEDED, TaskPhase.FAILED})


class TaskVerdict(StrEnum):
    """What came out of the work."""

    GO = "GO"
    NO_GO = "NO-GO"
    INCOMPLETE = "INCOMPLETE"
    GATE_PASS = "GATE-PASS"  # noqa: S105  a verdict, no password
    GATE_FAIL = "GATE-FAIL"
    GATE_ERROR = "GATE-ERROR"
    SKIPPED = "Skipped"


class FailureReason(StrEnum):
    """Why the work has no good verdict."""

    AGENT_NOT_FOUND = "AgentNotFound"
    INFERENCE_SERVICE_UNAVAILABLE = "InferenceServiceUnavailable"
    AUTH_UNAVAILABLE = "AuthUnavailable"
    GIT_REMOTE_NOT_CONFIGURED = "GitRemoteNotConfigured"
    CLONE_FAILED = "CloneFailed"
    MODEL_MISUNDERSTOOD = "ModelMisunderstood"
    TOOL_FAILED = "ToolFailed"
    MAX_TURNS_EXHAUSTED = "MaxTurnsExhausted"
    CONSTRAINT_VIOLATED = "ConstraintViolated"
    TIMEOUT = "Timeout"
    INFRASTRUCTURE_ERROR = "InfrastructureError"
    GATE_FAILED = "GateFailed"
    GATE_ERROR = "GateError"
    MODEL_REPORTED_ERROR = "ModelReportedError"


class RequiredCapability(WireModel):
    """What a node must have to be given the task; RAM in GiB."""

    min_ram_gb: Count = Field(default=0, alias="minRAMGB")
    requires_model_installed: bool = False
    min_context_tokens: Count = 0
    accelerator: RequiredAccelerator = RequiredAccelerator.ANY
    node_selector: dict[str, str] = Field(default_factory=dict)
    roles: tuple[str, ...] = ()


class GateAdvisory(WireModel):
    """A finding of an advisory result gate, handed on to the reviewer."""

    check: str = ""
    detail: str = ""


class Slice(WireModel):
    """One part of a change that is built on a branch of its own."""

    name: str = ""
    branch: str = ""
    files: tuple[str, ...] = ()


class SharedIdentifier(WireModel):
    """A name that one slice defines and others use."""

    id: str = ""
    defined_by: str = ""
    referenced_by: tuple[str, ...] = ()


class TaskPayload(WireModel):
    """The work itself."""

    repo: str = ""
    issue: int | None = Field(default=None, ge=1)
    branch: str = ""
    base_branch: str = ""
    open_pull_request: bool = False
    allow_overwrite: bool = False
    branch_prefix: str = ""
    revise_from_branch: str = ""
    branch_strategy: BranchStrategy = BranchStrategy.RESET
    prompt: str = ""
    images: tuple[str, ...] = ()
    prompt_prefix: str = ""
    agent: str = ""
    gate_advisories: tuple[GateAdvisory, ...] = ()
    slices: tuple[Slice, ...] = ()
    contract: str = ""
    shared_identifiers: tuple[SharedIdentifier, ...] = ()


class TestLayout(WireModel):
    """Where tests and sources lie in the repository."""

    __test__ = False  # Its name is the wire's; pytest would take it for a test class.

    test_root: str = ""
    source_root: str = ""


class GateCommands(WireModel):
    """The commands of the result gates."""

    format: str = ""
    lint: str = ""
    build: str = ""
    test: str = ""
    codegen_check: str = ""


class GateProfile(WireModel):
    """Which result gates apply to the work."""

    language: GateLanguage | None = None
    image: str = ""
    source_extensions: tuple[str, ...] = ()
    test_layout: TestLayout | None = None
    commands: GateCommands | None = None


class VerdictPolicy(WireModel):
    """The classes of work for which a coder may say GO by itself."""

    self_go: tuple[WorkClass, ...] = Field(
        default=(WorkClass.CODE_FIX, WorkClass.DOCS, WorkClass.PACKAGING, WorkClass.CONFIG), alias="selfGO"
    )


class AgenticTaskSpec(WireModel):
    """What was asked for."""

    kind: TaskKind
    model_ref: str = ""
    agent_ref: NameReference | None = None
    required_capability: RequiredCapability = Field(default_factory=RequiredCapability)
    payload: TaskPayload = Field(default_factory=TaskPayload)
    timeout_seconds: Count = 0
    depends_on: tuple[str, ...] = ()
    priority: int = 0
    gate_profile: GateProfile | None = None
    mcp_enabled: bool | None = None
    verdict_policy: VerdictPolicy | None = None


class AgenticTaskStatus(WireModel):
    """How far it has come."""

    phase: TaskPhase | None = None
    assigned_node: str = ""
    claimed_at: WireTime | None = None
    started_at: WireTime | None = None
    finished_at: WireTime | None = None
    verdict: TaskVerdict | None = None
    failure_reason: FailureReason | None = None
    result: dict[str, Any] = Field(default_factory=dict)
    branch: str = ""
    commit_sha: str = Field(default="", alias="commitSHA")
    job_name: str = ""
    transcript_ref: str = ""
    conditions: tuple[Condition, ...] = ()


class AgenticTask(WireObject):
    """One task."""

    api_version: Literal["foreman.llmkube.dev/v1alpha1"] = "foreman.llmkube.dev/v1alpha1"
    kind: Literal["AgenticTask"] = "AgenticTask"
    metadata: ObjectMeta
    spec: AgenticTaskSpec
    status: AgenticTaskStatus = Field(default_factory=AgenticTaskStatus)

    @property
    def reference(self) -> str:
        """`namespace/name`, as a node's currentTask spells it."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing will happen to the task any more."""
        return self.status.phase in TERMINAL

    @property
    def is_in_flight(self) -> bool:
        """Whether a node has the task, claimed or not."""
        return self.status.phase in IN_FLIGHT

    @property
    def on_target(self) -> bool:
        """Whether the task did what it was for, so that its dependants may start."""
        return self.status.phase is TaskPhase.SUCCEEDED and self.status.verdict in {
            TaskVerdict.GO,
            TaskVerdict.GATE_PASS,
        }

    @property
    def already_resolved(self) -> bool:
        """Whether the work turned out to be done already, so that its dependants are skipped."""
        extra = self.status.result.get("extra")
        outcome = extra.get("outcome") if isinstance(extra, dict) else None
        return self.status.verdict is TaskVerdict.NO_GO and outcome == ALREADY_RESOLVED

    @property
    def claim_expiries(self) -> int:
        """How often the claim on this task has expired; an annotation that is no number counts as none."""
        text = self.metadata.annotations.get(CLAIM_EXPIRIES_ANNOTATION, "")
        return int(text) if text.isascii() and text.isdigit() else 0

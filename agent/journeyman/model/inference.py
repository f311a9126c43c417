"""Model and InferenceService: what a node is asked to serve, in the fields that an edge host can use.

Fields that only make sense for pods (images, resources, autoscaling, caches on volumes) are not read.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from journeyman.model.fleet_node import SHA256_PATTERN
from journeyman.model.meta import Condition, Count, NameReference, ObjectMeta, WireModel, WireObject

# The annotation by which people give a service to a node; its value is the node's name.
PLACED_ON = "journeyman.dev/node"
SOURCE_PATTERN = r"^(https?|file|pvc|hf|s3)://.+|^/.+|^[A-Za-z0-9][\w.-]*/[\w.-]+$"


class ModelFormat(StrEnum):
    """The format of a model's files."""

    GGUF = "gguf"
    MLX = "mlx"
    SAFETENSORS = "safetensors"
    PYTORCH = "pytorch"
    CUSTOM = "custom"


class ModelAccelerator(StrEnum):
    """What a model shall run on; `metal` is what hands it to hosts outside the cluster."""

    CPU = "cpu"
    METAL = "metal"
    CUDA = "cuda"
    ROCM = "rocm"
    INTEL = "intel"
    VULKAN = "vulkan"


class RuntimeName(StrEnum):
    """The server program that an InferenceService asks for."""

    LLAMACPP = "llamacpp"
    LLAMACPP_ROUTER = "llamacpp-router"
    PERSONAPLEX = "personaplex"
    VLLM = "vllm"
    TGI = "tgi"
    SGLANG = "sglang"
    GENERIC = "generic"


class ServingMode(StrEnum):
    """What is served."""

    CHAT = "chat"
    EMBEDDING = "embedding"
    RERANK = "rerank"


class ServicePriority(StrEnum):
    """Who gives way when memory is short."""

    CRITICAL = "critical"
    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"
    BATCH = "batch"


class InferenceServicePhase(StrEnum):
    """Where the service is."""

    PENDING = "Pending"
    CREATING = "Creating"
    PROGRESSING = "Progressing"
    READY = "Ready"
    WAITING_FOR_GPU = "WaitingForGPU"
    STOPPED = "Stopped"
    SUSPENDED = "Suspended"
    FAILED = "Failed"


class GpuHardware(WireModel):
    """How many layers of the model go to the GPU."""

    enabled: bool = False
    layers: int | None = None


class ModelHardware(WireModel):
    """What the model runs on, and how much memory it may take."""

    accelerator: ModelAccelerator = ModelAccelerator.CPU
    gpu: GpuHardware | None = None
    memory_budget: str = ""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None


class ModelSpec(WireModel):
    """Where the model comes from."""

    source: str = Field(pattern=SOURCE_PATTERN)
    sha256: str = Field(default="", pattern=SHA256_PATTERN)
    source_secret_ref: NameReference | None = None
    refresh_policy: str = ""
    format: ModelFormat = ModelFormat.GGUF
    hardware: ModelHardware = Field(default_factory=ModelHardware)


class GgufFacts(WireModel):
    """What the header of a GGUF file says."""

    layer_count: int = 0
    embedding_size: int = 0


class ModelStatus(WireModel):
    """What the operator found out about the model; `size` is a Kubernetes quantity."""

    phase: str = ""
    size: str = ""
    sha256: str = ""
    gguf: GgufFacts | None = None
    conditions: tuple[Condition, ...] = ()


class Model(WireObject):
    """One model."""

    api_version: Literal["inference.llmkube.dev/v1alpha1"] = "inference.llmkube.dev/v1alpha1"
    kind: Literal["Model"] = "Model"
    metadata: ObjectMeta
    spec: ModelSpec
    status: ModelStatus = Field(default_factory=ModelStatus)


class ServiceEndpoint(WireModel):
    """The port and path under which the service is reached."""

    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    path: str = ""


class RopeScaling(WireModel):
    """How a context is stretched; the factor is a number that is spelled as text."""

    type: str
    factor: str = Field(default="", pattern=r"^([0-9]+(\.[0-9]+)?)?$")
    original_context: Count | None = None


class InferenceServiceSpec(WireModel):
    """What is served, and how."""

    model_ref: str = ""
    runtime: RuntimeName = RuntimeName.LLAMACPP
    mode: ServingMode | None = None
    replicas: Count = 1
    suspend: bool = False
    context_size: Count | None = None
    rope_scaling: RopeScaling | None = None
    parallel_slots: Count | None = None
    flash_attention: bool | None = None
    jinja: bool | None = None
    cache_type_k: str = ""
    cache_type_v: str = ""
    no_kv_offload: bool | None = None
    no_warmup: bool | None = None
    reasoning_budget: int | None = None
    batch_size: Count | None = None
    u_batch_size: Count | None = None
    extra_args: tuple[str, ...] = ()
    priority: ServicePriority = ServicePriority.NORMAL
    eviction_protection: bool = False
    endpoint: ServiceEndpoint | None = None


class InferenceServiceStatus(WireModel):
    """How the service is doing."""

    phase: InferenceServicePhase | None = None
    replicas: int = 0
    ready_replicas: int = 0
    desired_replicas: int = 0
    endpoint: str = ""
    scheduling_status: str = ""
    scheduling_message: str = ""
    conditions: tuple[Condition, ...] = ()


class InferenceService(WireObject):
    """One service."""

    api_version: Literal["inference.llmkube.dev/v1alpha1"] = "inference.llmkube.dev/v1alpha1"
    kind: Literal["InferenceService"] = "InferenceService"
    metadata: ObjectMeta
    spec: InferenceServiceSpec
    status: InferenceServiceStatus = Field(default_factory=InferenceServiceStatus)

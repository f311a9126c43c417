"""One model that this host serves: a `[[inference]]` table of the settings, or a word of `models`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from journeyman.core.model_source import is_folder
from journeyman.core.proxy.routes import Upstream
from journeyman.errors import ConfigError
from journeyman.model.inference import ServicePriority

RuntimeName = Literal["native", "llama-server", "llama-cpp-python", "mlx", "external"]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"]
Tokens = Annotated[int, Field(ge=128, le=100_000_000)]

# What is said about every model, whatever serves it.
ALWAYS = {"name", "model", "runtime"}
LIFE = {"start", "idle_unload_seconds", "priority", "eviction_protection"}
GGUF = LIFE | {"sha256", "context_tokens", "threads", "gpu_layers", "flash_attention", "port"}
LLAMA_CPP = GGUF | {
    *("slots", "mode", "cache_type_k", "cache_type_v", "draft_model", "jinja", "chat_template_file"),
    *("batch_tokens", "micro_batch_tokens", "kv_offload"),
    *("rope_scaling", "rope_scale", "rope_original_tokens"),
}
# What a runtime has no use for is refused: a setting that changes nothing would be believed.
TAKEN: dict[str, set[str]] = {
    "native": LLAMA_CPP,
    "llama-server": LLAMA_CPP | {"program", "extra_args", "reasoning_budget"},
    "llama-cpp-python": GGUF | {"program", "extra_args"},
    "mlx": LIFE | {"program", "extra_args", "port", "draft_model", "slots", "context_tokens"},
    "external": {"url", "key_file", "upstream_model", "slots", "context_tokens", "mode"},
}


class Inference(BaseModel):
    """What to serve, and how.  The descriptions are what docs/settings.md says.

    Raises:
        ValidationError: a value cannot be, or the runtime has no use for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = Field(
        None,
        pattern=r"^[^\s/][^\s]{0,199}$",
        description="Name by which clients ask for it; without it that of the model.",
    )
    model: str = Field("", description="Name in the model store, a path or a source; for `mlx` of a folder.")
    sha256: str | None = Field(
        None,
        pattern=r"^[0-9a-f]{64}$",
        description="SHA-256 that the model's file must have, or it is not served.",
    )
    runtime: RuntimeName = Field("native", description="What serves it; see docs/inference.md.")
    program: Path | None = Field(
        None, description="Program of the runtime; without it the one on PATH, or beside our Python."
    )
    url: str | None = Field(
        None, description="Address of a server that runs already, such as http://127.0.0.1:11434/v1."
    )
    key_file: Path | None = Field(None, description="File with the key of that server.")
    upstream_model: str = Field("", description="Name by which that server knows the model.")
    mode: Literal["chat", "embedding", "rerank"] = Field("chat", description="What it is asked for.")
    context_tokens: Tokens | None = Field(
        None, description="Context of each slot; without it `model_context_tokens`."
    )
    slots: int | None = Field(
        None, ge=1, le=64, description="Requests at a time; without it `model_parallel_slots`."
    )
    threads: int | None = Field(
        None, ge=0, le=1024, description="Compute threads; without it `model_threads`."
    )
    gpu_layers: int | None = Field(
        None, ge=0, le=10_000, description="Layers on the GPU; without it as many as it has room for."
    )
    cache_type_k: CacheType | None = Field(None, description="Type of the cached keys; without it f16.")
    cache_type_v: CacheType | None = Field(
        None, description="Type of the cached values; a quantised one needs flash attention."
    )
    flash_attention: Literal["auto", "on", "off"] = Field("auto", description="Whether to use it.")
    kv_offload: bool = Field(default=True, description="Keep keys and values on the GPU beside its layers.")
    batch_tokens: int | None = Field(
        None, ge=1, le=65_536, description="Tokens of a prompt that are taken at a time; without it 2048."
    )
    micro_batch_tokens: int | None = Field(
        None,
        ge=1,
        le=65_536,
        description="Tokens that are computed at a time; without it 512, more takes memory.",
    )
    rope_scaling: Literal["linear", "yarn", "longrope"] | None = Field(
        None, description="How a context is stretched beyond what the model was trained for."
    )
    rope_scale: float | None = Field(None, gt=0, le=1024, description="How far; 2.0 is twice as long.")
    rope_original_tokens: Tokens | None = Field(
        None, description="Context that the model was trained for; without it what its file says."
    )
    reasoning_budget: int | None = Field(
        None, ge=-1, le=1_000_000, description="Tokens that it may think; 0 is none, -1 as many as it likes."
    )
    draft_model: str | None = Field(
        None, description="Small model that drafts tokens for this one; a name or a path like `model`."
    )
    jinja: bool = Field(default=True, description="Use the model's chat template; without it no tools.")
    chat_template_file: Path | None = Field(
        None, description="Chat template in place of the model's; read at each start."
    )
    port: int = Field(0, ge=0, le=65_535, description="Port on 127.0.0.1; 0 is one that is free.")
    extra_args: tuple[str, ...] = Field((), description="Further arguments of the runtime's program.")
    start: Literal["always", "on_demand"] = Field(
        "always", description="Start it with the agent, or when somebody asks for it."
    )
    idle_unload_seconds: float = Field(
        0,
        ge=0,
        le=31_536_000,
        description="Time without a request after which it is ended, until the next one; 0 is never.",
    )

    priority: ServicePriority = Field(
        ServicePriority.NORMAL,
        description="Who goes first when memory is short: `batch`, `low`, `normal`, `high`, then `critical`.",
    )
    eviction_protection: bool = Field(
        default=False, description="Never end it for another model, and for the host only as the last one."
    )

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The table with these options.  Raises ConfigError: they cannot be."""
        try:
            return cls(**options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in first["loc"])
            text = first["msg"].removeprefix("Value error, ")
            raise ConfigError(f"{key}: {text}" if key else text) from error

    @property
    def shown_name(self) -> str:
        """What to call it before anybody has looked at the model itself."""
        return self.name or self.model

    @model_validator(mode="before")
    @classmethod
    def _choose_runtime(cls, options: Any) -> Any:
        """A whole folder is a model for MLX, so nobody has to say it twice."""
        if isinstance(options, dict) and "runtime" not in options and is_folder(str(options.get("model"))):
            return {**options, "runtime": "mlx"}
        return options

    @model_validator(mode="after")
    def _check_runtime(self) -> Self:
        useless = sorted(self.model_fields_set - ALWAYS - TAKEN[self.runtime])
        if useless:
            raise ValueError(f"runtime {self.runtime} has no use for {', '.join(useless)}")
        if self.runtime == "external":
            self._check_external()
        elif not self.model:
            raise ValueError("`model` is missing: a name in the model store, or a path")
        elif is_folder(self.model) and self.runtime != "mlx":
            raise ValueError(f"{self.model} is a whole folder, which runtime {self.runtime} cannot serve")
        if self.cache_type_v not in {None, "f32", "f16", "bf16"} and self.flash_attention == "off":
            raise ValueError(f"cache_type_v {self.cache_type_v} needs flash attention")
        if self.rope_scaling is None and (self.rope_scale or self.rope_original_tokens):
            raise ValueError("rope_scale and rope_original_tokens say nothing without rope_scaling")
        return self

    def _check_external(self) -> None:
        if not self.name:
            raise ValueError("`name` is missing: how clients ask for the model of that server")
        if self.url is None:
            raise ValueError("`url` is missing: where the server answers")
        Upstream.of(self.url)
        if self.model:
            raise ValueError(
                "runtime external has no use for model; `upstream_model` is what it is called there"
            )

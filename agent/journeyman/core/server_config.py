"""What a model server is started for: it lies in its worker's folder, and decides about adoption.

A server is adopted by an agent that wants the very same text, and an update must cost no reload.  So what is
at its default is not written, but for the fields of the first release: a field that a later release adds
changes the text of those servers alone that make use of it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Self

NATIVE = "native"
ALWAYS_WRITTEN = {"model", "path", "sha256", "context_tokens", "parallel", "threads"}


@dataclass(frozen=True)
class ServerConfig:
    """One model server.

    Attributes:
        model: the name under which it serves.
        path: the GGUF file, or the folder of an MLX model.
        sha256: of that file, so that other weights in the same place are another configuration; empty for
            a folder.
        context_tokens: for each slot.
        parallel: how many requests it works on at a time.
        threads: compute threads; 0 is one a core.
        runtime: what serves it, see `core/runtimes`.
        program: of the runtime; empty for the one that is found.
        mode: `chat`, `embedding` or `rerank`.
        gpu_layers: layers on the GPU; -1 is as many as it has room for.
        cache_type_k: type of the cached keys; empty for the runtime's own.
        cache_type_v: type of the cached values; empty for the runtime's own.
        flash_attention: `auto`, `on` or `off`.
        draft_path: the model that drafts tokens for this one; empty for none.
        draft_sha256: of that file.
        jinja: whether the chat template is used as it is.
        chat_template_file: in place of the model's own template; empty for that.
        port: on 127.0.0.1; 0 is a free one.
        extra_args: of the runtime's program.
        kv_offload: whether keys and values are where the layers are.
        batch_tokens: of a prompt that are taken at a time; 0 is the runtime's own number.
        micro_batch_tokens: of these, that are computed at a time; 0 is the runtime's own number.
        rope_scaling: how a context is stretched; empty for not at all.
        rope_scale: how far; 0 for what the model says.
        rope_original_tokens: the context that it was trained for; 0 for what the model says.
        reasoning_budget: tokens that it may think; -1 is as many as it likes.
    """

    model: str
    path: str
    sha256: str
    context_tokens: int = 4096
    parallel: int = 1
    threads: int = 0
    runtime: str = NATIVE
    program: str = ""
    mode: str = "chat"
    gpu_layers: int = -1
    cache_type_k: str = ""
    cache_type_v: str = ""
    flash_attention: str = "auto"
    draft_path: str = ""
    draft_sha256: str = ""
    jinja: bool = True
    chat_template_file: str = ""
    port: int = 0
    extra_args: tuple[str, ...] = ()
    kv_offload: bool = True
    batch_tokens: int = 0
    micro_batch_tokens: int = 0
    rope_scaling: str = ""
    rope_scale: float = 0
    rope_original_tokens: int = 0
    reasoning_budget: int = -1

    def to_json(self) -> bytes:
        defaults = {field.name: field.default for field in fields(self)}
        told = {
            name: value
            for name, value in asdict(self).items()
            if name in ALWAYS_WRITTEN or value != defaults[name]
        }
        return json.dumps(told, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Reads what `to_json` wrote.  Raises ValueError: it is no configuration."""
        try:
            told = json.loads(data)
            return cls(**{**told, "extra_args": tuple(told.get("extra_args", ()))})
        except (TypeError, AttributeError) as error:
            raise ValueError(f"no configuration of a model server: {error}") from error

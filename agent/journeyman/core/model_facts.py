"""What the header of a GGUF file means: its shape, its quantisation, and what its chat template can do.

The keys are those of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from journeyman.core.ggml_types import FILE_TYPES
from journeyman.core.gguf import GgufHeader
from journeyman.model.model_file import ModelFacts

EMBEDDING_TABLE = "token_embd.weight"
# A template that renders tools names their list; llama.cpp tells the same by rendering it.
_TOOLS = re.compile(r"\btools\b")
FLOAT_BYTES = 4
# Where the header has no pattern: every so many-th layer looks at everything, the others have the window.
# Source: `set_swa_pattern` in llama.cpp's src/models.
WINDOW_PATTERNS = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "cohere2": 4,
    "gpt-oss": 2,
    "llama4": 4,
    "exaone4": 4,
}

# More has no model, and a number from a file is not to decide how much memory we take.
MOST_LAYERS = 4096


def facts_of(headers: Sequence[GgufHeader]) -> ModelFacts:
    """The facts of a model.

    Args:
        headers: of its files, the first one first; the others of a split model add only tensors.
    """
    first = headers[0]
    layers = min(first.number("block_count"), MOST_LAYERS)
    heads = _for_each_layer(first, "attention.head_count", layers, 0)
    kv_heads = _for_each_layer(first, "attention.head_count_kv", layers, None) or heads
    embedding = first.number("embedding_length")
    head_length = embedding // max((*heads, 1))
    window = first.number("attention.sliding_window")
    return ModelFacts(
        title=str(first.metadata.get("general.name", "")),
        architecture=first.architecture,
        quantisation=_quantisation(headers),
        parameters=sum(header.parameters for header in headers),
        tensor_bytes=sum(sum(header.tensor_bytes.values()) for header in headers),
        token_table_bytes=sum(header.tensor_sizes.get(EMBEDDING_TABLE, 0) for header in headers),
        context_tokens=first.context_tokens,
        layers=layers,
        embedding=embedding,
        feed_forward=max(_for_each_layer(first, "feed_forward_length", layers, 0), default=0),
        vocabulary=first.number("vocab_size") or first.array_lengths.get("tokenizer.ggml.tokens", 0),
        heads=heads,
        kv_heads=kv_heads,
        key_length=first.number("attention.key_length", head_length),
        value_length=first.number("attention.value_length", head_length),
        sliding_window=window,
        windowed=_windowed(first, layers) if window else (False,) * layers,
        latent_length=_latent_length(first),
        state_bytes=_state_bytes(first, layers),
        experts=first.number("expert_count"),
        experts_used=first.number("expert_used_count"),
        has_chat_template=bool(first.chat_template),
        supports_tools=has_place_for_tools(first.chat_template),
    )


def has_place_for_tools(chat_template: str) -> bool:
    """Whether a conversation that is written so tells the model of tools."""
    return _TOOLS.search(chat_template) is not None


def _for_each_layer(header: GgufHeader, key: str, layers: int, default: int | None) -> tuple[int, ...]:
    """A value that a header gives once for all layers, or for each of them."""
    value = header.metadata.get(f"{header.architecture}.{key}", default)
    if isinstance(value, tuple):
        return tuple(int(item) for item in value)
    return (int(value),) * layers if isinstance(value, int) else ()


def _quantisation(headers: Sequence[GgufHeader]) -> str:
    """What the file says; else the type that most of its bytes have."""
    told = headers[0].metadata.get("general.file_type")
    if isinstance(told, int) and told in FILE_TYPES:
        return FILE_TYPES[told]
    sizes: dict[str, int] = {}
    for header in headers:
        for name, size in header.tensor_bytes.items():
            sizes[name] = sizes.get(name, 0) + size
    return max(sizes, key=lambda name: sizes[name], default="")


def _windowed(header: GgufHeader, layers: int) -> tuple[bool, ...]:
    told = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    if isinstance(told, tuple) and len(told) == layers:
        return tuple(bool(one) for one in told)
    period = told if isinstance(told, int) else WINDOW_PATTERNS.get(header.architecture, 0)
    # Of an architecture that is not known, the larger estimate: all layers look at everything.
    return tuple(period > 0 and layer % period < period - 1 for layer in range(layers))


def _latent_length(header: GgufHeader) -> int:
    """Of multi-head latent attention: the rank of the latent and the part of the key that is rotated.

    Only files that bring the split projection are run in that way.
    """
    rank = header.number("attention.kv_lora_rank")
    has_split = any(name.endswith(".attn_k_b.weight") for name in header.tensor_sizes)
    return rank + header.number("rope.dimension_count") if rank and has_split else 0


def _state_bytes(header: GgufHeader, layers: int) -> int:
    """The state that a recurrent layer keeps for each slot: `n_embd_r` and `n_embd_s` of llama.cpp."""
    inner, state = header.number("ssm.inner_size"), header.number("ssm.state_size")
    kernel, groups = header.number("ssm.conv_kernel"), header.number("ssm.group_count")
    convolved = max(kernel - 1, 0) * (inner + 2 * groups * state)
    recurrent = layers - sum(
        1 for heads in _for_each_layer(header, "attention.head_count_kv", layers, 0) if heads
    )
    return (convolved + inner * state) * FLOAT_BYTES * recurrent if inner else 0

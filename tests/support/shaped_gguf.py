"""Writes GGUF models of a wanted shape whose weights are all zero: large on paper, holes on the disk.

llama.cpp loads them and says how much memory it took, which is all that the tests of the estimate want.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from journeyman.core.ggml_types import TENSOR_TYPES
from tests.support.tiny_gguf import ALIGNMENT, VOCABULARY

UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
NUMBERS = {name: number for number, (name, _, _) in TENSOR_TYPES.items()}


@dataclass(frozen=True)
class Shape:
    """A model of the llama family, or of another architecture with the same tensors.

    Attributes:
        architecture: `llama`, `gemma3`, ...
        vocabulary: how many tokens; the first are bytes, the others have made-up names.
        weight_type: of all matrices, as ggml names it.
        window: of the layers with a sliding window; 0 for none.
        experts, experts_used: of a mixture; 0 for none.
    """

    architecture: str = "llama"
    embedding: int = 256
    feed_forward: int = 512
    layers: int = 4
    heads: int = 8
    kv_heads: int = 8
    head_length: int = 64
    context: int = 32_768
    vocabulary: int = 1024
    weight_type: str = "F16"
    window: int = 0
    experts: int = 0
    experts_used: int = 0
    tied: bool = False


def write_shaped_gguf(path: Path, shape: Shape) -> None:
    """Writes the model; its weights take no room where the file system knows holes."""
    tensors = _tensors(shape)
    metadata = _metadata(shape)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata)
    offset = 0
    for name, kind, sizes in tensors:
        header += _text(name) + struct.pack("<I", len(sizes))
        header += b"".join(struct.pack("<Q", size) for size in sizes)
        header += struct.pack("<IQ", NUMBERS[kind], offset)
        _, block, block_bytes = TENSOR_TYPES[NUMBERS[kind]]
        offset += _aligned(math.prod(sizes) // block * block_bytes)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(_aligned(len(header)) + offset)


def _tensors(shape: Shape) -> list[tuple[str, str, tuple[int, ...]]]:
    width, kind = shape.embedding, shape.weight_type
    query, keys = shape.heads * shape.head_length, shape.kv_heads * shape.head_length
    tensors: list[tuple[str, str, tuple[int, ...]]] = [
        ("token_embd.weight", kind, (width, shape.vocabulary)),
        ("output_norm.weight", "F32", (width,)),
    ]
    if not shape.tied:
        tensors.append(("output.weight", kind, (width, shape.vocabulary)))
    for layer in range(shape.layers):
        block: list[tuple[str, str, tuple[int, ...]]] = [
            ("attn_norm", "F32", (width,)),
            ("attn_q", kind, (width, query)),
            ("attn_k", kind, (width, keys)),
            ("attn_v", kind, (width, keys)),
            ("attn_output", kind, (query, width)),
            ("ffn_norm", "F32", (width,)),
        ]
        if shape.architecture == "gemma3":
            block += [(name, "F32", (shape.head_length,)) for name in ("attn_q_norm", "attn_k_norm")]
            block += [(name, "F32", (width,)) for name in ("post_attention_norm", "post_ffw_norm")]
        if shape.experts:
            block += [
                ("ffn_gate_inp", "F32", (width, shape.experts)),
                ("ffn_gate_exps", kind, (width, shape.feed_forward, shape.experts)),
                ("ffn_up_exps", kind, (width, shape.feed_forward, shape.experts)),
                ("ffn_down_exps", kind, (shape.feed_forward, width, shape.experts)),
            ]
        else:
            block += [
                ("ffn_gate", kind, (width, shape.feed_forward)),
                ("ffn_up", kind, (width, shape.feed_forward)),
                ("ffn_down", kind, (shape.feed_forward, width)),
            ]
        tensors += [(f"blk.{layer}.{name}.weight", kind, sizes) for name, kind, sizes in block]
    return tensors


def _metadata(shape: Shape) -> list[bytes]:
    numbers = {
        "context_length": shape.context,
        "embedding_length": shape.embedding,
        "block_count": shape.layers,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_length,
        "attention.value_length": shape.head_length,
        "rope.dimension_count": shape.head_length,
        "vocab_size": shape.vocabulary,
        "attention.sliding_window": shape.window,
        "expert_count": shape.experts,
        "expert_used_count": shape.experts_used,
    }
    known = [token for token, _ in VOCABULARY]
    names = [*known, *(f"w{number}" for number in range(len(known), shape.vocabulary))]
    kinds = [*(kind for _, kind in VOCABULARY), *[1] * (shape.vocabulary - len(known))]
    count = shape.vocabulary
    return [
        _text("general.architecture") + struct.pack("<I", STRING) + _text(shape.architecture),
        *(
            _text(f"{shape.architecture}.{key}") + struct.pack("<II", UINT32, value)
            for key, value in numbers.items()
            if value
        ),
        _text(f"{shape.architecture}.attention.layer_norm_rms_epsilon") + struct.pack("<If", FLOAT32, 1e-5),
        _text("tokenizer.ggml.model") + struct.pack("<I", STRING) + _text("llama"),
        _text("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", ARRAY, STRING, count)
        + b"".join(map(_text, names)),
        _text("tokenizer.ggml.scores") + struct.pack(f"<IIQ{count}f", ARRAY, FLOAT32, count, *[0.0] * count),
        _text("tokenizer.ggml.token_type") + struct.pack(f"<IIQ{count}i", ARRAY, INT32, count, *kinds),
    ]


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT

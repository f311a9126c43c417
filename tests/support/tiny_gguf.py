"""Writes a GGUF model of random weights that llama.cpp loads in a moment: 0.5 MB, bytes as tokens.

It says nothing sensible, and that is enough for everything but the sense of an answer.
"""

from __future__ import annotations

import array
import random
import struct
from pathlib import Path

EMBEDDING, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 128, 2, 4, 2, 2048
ALIGNMENT = 32
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
)
TEMPLATE_WITH_TOOLS = "{% if tools %}You have: {{ tools | tojson }}\n{% endif %}" + TEMPLATE
# Each token with its type (1 normal, 2 unknown, 3 control, 6 byte), as a SentencePiece vocabulary has them.
VOCABULARY = (
    [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    + [(f"<0x{byte:02X}>", 6) for byte in range(256)]
    + [("\u2581", 1)]
    + [(chr(code), 1) for code in range(33, 127)]
)


def write_tiny_gguf(path: Path, template: str = TEMPLATE, context: int = CONTEXT) -> None:
    """Writes the same bytes each time for the same chat template and context."""
    tensors = _tensors()
    metadata = _metadata(template, context)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    infos, data = b"", b""
    for name, shape, values in tensors:
        infos += _text(name) + struct.pack("<I", len(shape))
        infos += b"".join(struct.pack("<Q", size) for size in shape) + struct.pack("<IQ", 0, len(data))
        data += _padded(values.tobytes())
    path.write_bytes(_padded(header + b"".join(metadata) + infos) + data)


def _tensors() -> list[tuple[str, tuple[int, ...], array.array[float]]]:
    source = random.Random(7)
    key_width = EMBEDDING // HEADS * KV_HEADS

    def weights(name: str, *shape: int) -> tuple[str, tuple[int, ...], array.array[float]]:
        count = 1
        for size in shape:
            count *= size
        return name, shape, array.array("f", (source.gauss(0, 0.02) for _ in range(count)))

    def ones(name: str) -> tuple[str, tuple[int, ...], array.array[float]]:
        return name, (EMBEDDING,), array.array("f", [1.0] * EMBEDDING)

    tensors = [
        weights("token_embd.weight", EMBEDDING, len(VOCABULARY)),
        ones("output_norm.weight"),
        weights("output.weight", EMBEDDING, len(VOCABULARY)),
    ]
    for layer in range(LAYERS):
        tensors += [
            ones(f"blk.{layer}.attn_norm.weight"),
            weights(f"blk.{layer}.attn_q.weight", EMBEDDING, EMBEDDING),
            weights(f"blk.{layer}.attn_k.weight", EMBEDDING, key_width),
            weights(f"blk.{layer}.attn_v.weight", EMBEDDING, key_width),
            weights(f"blk.{layer}.attn_output.weight", EMBEDDING, EMBEDDING),
            ones(f"blk.{layer}.ffn_norm.weight"),
            weights(f"blk.{layer}.ffn_gate.weight", EMBEDDING, FEED_FORWARD),
            weights(f"blk.{layer}.ffn_up.weight", EMBEDDING, FEED_FORWARD),
            weights(f"blk.{layer}.ffn_down.weight", FEED_FORWARD, EMBEDDING),
        ]
    return tensors


def _metadata(template: str, context: int) -> list[bytes]:
    numbers = {
        "llama.context_length": context,
        "llama.embedding_length": EMBEDDING,
        "llama.block_count": LAYERS,
        "llama.feed_forward_length": FEED_FORWARD,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.rope.dimension_count": EMBEDDING // HEADS,
        "general.alignment": ALIGNMENT,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    texts = {
        "general.architecture": "llama",
        "general.name": "tiny random",
        "tokenizer.ggml.model": "llama",
        "tokenizer.chat_template": template,
    }
    count = len(VOCABULARY)
    tokens = b"".join(_text(token) for token, _ in VOCABULARY)
    scores = struct.pack(f"<{count}f", *[0.0] * count)
    kinds = struct.pack(f"<{count}i", *(kind for _, kind in VOCABULARY))
    return [
        *(_text(key) + struct.pack("<I", STRING) + _text(value) for key, value in texts.items()),
        *(_text(key) + struct.pack("<II", UINT32, value) for key, value in numbers.items()),
        _text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", FLOAT32, 1e-5),
        _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", ARRAY, STRING, count) + tokens,
        _text("tokenizer.ggml.scores") + struct.pack("<IIQ", ARRAY, FLOAT32, count) + scores,
        _text("tokenizer.ggml.token_type") + struct.pack("<IIQ", ARRAY, INT32, count) + kinds,
    ]


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % ALIGNMENT)

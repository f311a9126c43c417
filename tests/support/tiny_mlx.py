"""Writes an MLX model of random weights: the folder that Hugging Face's tools write, half a megabyte."""

from __future__ import annotations

import array
import json
import random
import struct
from pathlib import Path

EMBEDDING, FEED_FORWARD, LAYERS, HEADS, KV_HEADS, CONTEXT = 64, 128, 2, 4, 2, 2048
SPECIAL = ("<s>", "</s>")
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
)


def write_tiny_mlx(folder: Path, *, template: str = TEMPLATE, context: int = CONTEXT) -> None:
    """Makes the folder; the same bytes each time for the same chat template and context."""
    folder.mkdir()
    vocabulary = {text: number for number, text in enumerate((*SPECIAL, *_byte_letters()))}
    files = {
        "config.json": _config(len(vocabulary), context),
        "tokenizer.json": _tokenizer(vocabulary),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL[0],
            "eos_token": SPECIAL[1],
            "chat_template": template,
            "model_max_length": context,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "model.safetensors").write_bytes(_weights(len(vocabulary)))


def _byte_letters() -> list[str]:
    """A printable letter for each byte, as GPT-2 has them: its own where it is printable."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _config(words: int, context: int) -> dict[str, object]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": EMBEDDING,
        "num_hidden_layers": LAYERS,
        "intermediate_size": FEED_FORWARD,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": words,
        "rope_theta": 10000.0,
        "max_position_embeddings": context,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }


def _tokenizer(vocabulary: dict[str, int]) -> dict[str, object]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": vocabulary[text], "content": text, **plain} for text in SPECIAL],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }


def _weights(words: int) -> bytes:
    source = random.Random(7)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, EMBEDDING),
        "lm_head.weight": (words, EMBEDDING),
        "model.norm.weight": (EMBEDDING,),
    }
    key_width = EMBEDDING // HEADS * KV_HEADS
    for layer in range(LAYERS):
        inner = {
            "input_layernorm": (EMBEDDING,),
            "post_attention_layernorm": (EMBEDDING,),
            "self_attn.q_proj": (EMBEDDING, EMBEDDING),
            "self_attn.k_proj": (key_width, EMBEDDING),
            "self_attn.v_proj": (key_width, EMBEDDING),
            "self_attn.o_proj": (EMBEDDING, EMBEDDING),
            "mlp.gate_proj": (FEED_FORWARD, EMBEDDING),
            "mlp.up_proj": (FEED_FORWARD, EMBEDDING),
            "mlp.down_proj": (EMBEDDING, FEED_FORWARD),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in inner.items()}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if shape[1:] else 1)
        values = [source.gauss(0, 0.02) if shape[1:] else 1.0 for _ in range(count)]
        packed = array.array("f", values).tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    return safetensors(header, data)


def safetensors(header: dict[str, object], data: bytes) -> bytes:
    """A file of that format, whatever its header says of the data behind it."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data

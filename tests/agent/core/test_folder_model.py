"""What the files of a folder mean: which of them count, and what they say of the model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from journeyman.core.folder_model import (
    FolderModel,
    cache_type,
    check_chosen,
    chosen,
    facts_of_folder,
    read_config,
    template_of,
)
from journeyman.core.model_facts import MOST_LAYERS
from journeyman.core.model_memory import ServerLoad, estimate
from journeyman.core.safetensors import Tensor
from journeyman.errors import ModelError, ModelFault
from journeyman.model.model_file import ModelFacts

LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


def facts(config: dict[str, Any], tensors: dict[str, Tensor] | None = None, template: str = "") -> ModelFacts:
    return facts_of_folder(FolderModel(config, template, tensors or {}))


def test_the_shape_is_that_of_the_config() -> None:
    """Layers, heads, widths and context, as the settings of transformers name them."""
    told = facts(LLAMA)
    assert (told.architecture, told.layers, told.context_tokens) == ("llama", 16, 131072)
    assert (told.heads, told.kv_heads) == ((32,) * 16, (8,) * 16)
    assert (told.key_length, told.value_length, told.feed_forward) == (64, 64, 8192)


def test_what_a_config_leaves_out_follows_from_the_rest() -> None:
    """Without heads of keys there are as many as of queries; the length of a head divides the width."""
    config = {key: LLAMA[key] for key in LLAMA if key not in {"num_key_value_heads", "head_dim"}}
    told = facts(config)
    assert (told.kv_heads[0], told.key_length) == (32, 64)


def test_packed_weights_are_counted_unpacked() -> None:
    """Eight weights of four bits lie in one number; their scales are none of the model's parameters."""
    tensors = {
        "model.embed_tokens.weight": Tensor("U32", (100, 8), 0, 3200),
        "model.embed_tokens.scales": Tensor("BF16", (100, 1), 3200, 3400),
        "model.embed_tokens.biases": Tensor("BF16", (100, 1), 3400, 3600),
        "model.norm.weight": Tensor("BF16", (64,), 3600, 3728),
    }
    told = facts({**LLAMA, "quantization": {"group_size": 64, "bits": 4}}, tensors)
    assert (told.parameters, told.tensor_bytes, told.quantisation) == (6464, 3728, "4-bit")
    assert told.token_table_bytes == 3600


def test_without_quantisation_the_type_of_most_bytes_is_told() -> None:
    """It says also what the keys and values are kept as."""
    half = facts(LLAMA, {"a": Tensor("BF16", (4,), 0, 8), "b": Tensor("F32", (1,), 8, 12)})
    whole = facts(LLAMA, {"a": Tensor("F32", (4,), 0, 16)})
    assert (half.quantisation, cache_type(half)) == ("BF16", "f16")
    assert (whole.quantisation, cache_type(whole)) == ("F32", "f32")


def test_windows_latents_and_experts_are_told() -> None:
    """What makes the cache smaller, and the widths of a mixture."""
    kinds = ["sliding_attention", "full_attention"]
    told = facts({**LLAMA, "num_hidden_layers": 2, "sliding_window": 512, "layer_types": kinds})
    assert (told.sliding_window, told.windowed) == (512, (True, False))
    assert not any(facts({**LLAMA, "sliding_window": 512, "use_sliding_window": False}).windowed)
    assert facts({**LLAMA, "kv_lora_rank": 512, "qk_rope_head_dim": 64}).latent_length == 576
    mixture = facts({**LLAMA, "num_experts": 64, "num_experts_per_tok": 8, "moe_intermediate_size": 768})
    assert (mixture.experts, mixture.experts_used, mixture.feed_forward) == (64, 8, 768)


def test_its_memory_can_be_estimated() -> None:
    """Weights, and the keys and values of grouped heads in half precision, for each slot."""
    told = facts(LLAMA, {"a": Tensor("BF16", (500_000_000,), 0, 1_000_000_000)})
    need = estimate(told, ServerLoad(context_tokens=4096, slots=2))
    assert need.weights_bytes == 1_000_000_000
    assert need.cache_bytes == 2 * 16 * 4096 * 8 * 64 * 2 * 2


@pytest.mark.parametrize("value", ["16", -1, 1.5, True, None, [], 2**70])
def test_nonsense_in_a_config_is_no_number(value: object) -> None:
    """What cannot be is as good as not told, and never a crash."""
    told = facts(dict.fromkeys(LLAMA, value))
    assert (told.layers, told.context_tokens, told.heads) == (0, 0, ())


def test_no_config_decides_how_much_memory_we_take() -> None:
    """A model of a billion layers has as many as any model can have."""
    assert len(facts({**LLAMA, "num_hidden_layers": 1_000_000_000}).heads) == MOST_LAYERS


def test_the_text_part_of_a_config_counts() -> None:
    """Models that see have the settings of their language part within."""
    config = {"model_type": "gemma3", "text_config": {"num_hidden_layers": 3}}
    assert read_config(json.dumps(config).encode(), "m") == {**config, "num_hidden_layers": 3}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"<html>", b"\xff\xfe{}", b"[" * 100_000])
def test_a_config_that_cannot_be_read_is_told(data: bytes) -> None:
    """It is as good as missing."""
    with pytest.raises(ModelError) as refused:
        read_config(data, "m")
    assert refused.value.fault is ModelFault.CONFIG_MISSING


def config_with(template: object) -> bytes:
    return json.dumps({"chat_template": template}).encode()


def test_the_chat_template_is_found_wherever_it_lies() -> None:
    """A file of its own wins over the two places in JSON, and of several templates all count."""
    assert template_of(b"own", config_with("json"), config_with("old")) == "own"
    assert template_of(None, config_with("json"), config_with("old")) == "json"
    assert template_of(None, b"nonsense", config_with("old")) == "old"
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "{{ tools }}"}]
    told = facts(LLAMA, template=template_of(None, None, config_with(named)))
    assert (told.has_chat_template, told.supports_tools) == (True, True)
    assert template_of(None, None, b"{}") == template_of(None, None, None) == ""
    assert facts(LLAMA, template="{{ messages }}").supports_tools is False


def test_only_data_and_weights_are_chosen() -> None:
    """No program, no pickle, nothing of another folder, and nothing whose name begins with a dot."""
    wanted = ["config.json", "merges.txt", "qwen.tiktoken", "tokenizer.model", "model.safetensors"]
    others = [
        *("modeling_x.py", "pytorch_model.bin", "model.pkl", "consolidated.safetensors", "../config.json"),
        *("sub/config.json", ".tiktoken", "config.json\n", "adapter.safetensors", "model.safetensors.bin"),
        "model/../x.safetensors",
    ]
    assert chosen([*others, *wanted]) == tuple(wanted)


@pytest.mark.parametrize(
    ("names", "index", "fault"),
    [
        (["model.safetensors"], None, ModelFault.CONFIG_MISSING),
        (["config.json"], None, ModelFault.MISSING),
        (["config.json", "model-00002-of-00002.safetensors"], None, ModelFault.PART_MISSING),
        (["config.json", "model-00001-of-99999.safetensors"], None, ModelFault.PART_MISSING),
        (["config.json", "model.safetensors"], {"weight_map": {"a": "model-x.safetensors"}}, "PartMissing"),
        (["config.json", "model.safetensors"], {"weight_map": {"a": "../x.safetensors"}}, "PartMissing"),
        (["config.json", "model.safetensors"], [], ModelFault.CONFIG_MISSING),
    ],
)
def test_what_is_missing_of_a_folder_is_told(names: list[str], index: object, fault: str) -> None:
    """The settings, all weights, or a part of them that names or the index promise."""
    with pytest.raises(ModelError) as refused:
        check_chosen(names, "m", None if index is None else json.dumps(index).encode())
    assert refused.value.fault == fault
    assert refused.value.advice

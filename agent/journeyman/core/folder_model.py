"""Models that are folders, as `mlx_lm` and transformers read them: which files count, and what they mean.

Only what a runtime needs is ever taken: weights as safetensors, settings and tokenizers as data.  No pickles
and no Python files, which would be somebody else's program.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.core.model_facts import MOST_LAYERS, has_place_for_tools
from journeyman.core.safetensors import BITS, Tensor
from journeyman.errors import ModelError, ModelFault
from journeyman.model.model_file import ModelFacts

CONFIG, INDEX = "config.json", "model.safetensors.index.json"
# Where a chat template may be, the one that is taken first.
TEMPLATES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
WEIGHTS = re.compile(r"model[A-Za-z0-9_.-]*\.safetensors")
SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors", re.ASCII)
_DATA = re.compile(
    r"(?:config|generation_config|model\.safetensors\.index|hf_quant_config"
    r"|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template)\.json"
    r"|(?:merges|vocab)\.txt|tokenizer\.model|chat_template\.jinja|[A-Za-z0-9_-][A-Za-z0-9_.-]*\.tiktoken"
)
# What is no weights is read as a whole by whoever loads it; the largest tokenizers have some 40 MB.
LARGEST_DATA_BYTES = 100_000_000
PACKED, PACKED_BITS = "U32", 32


def is_weights(name: str) -> bool:
    """Whether a file of a folder holds weights."""
    return WEIGHTS.fullmatch(name) is not None


def chosen(names: Collection[str]) -> tuple[str, ...]:
    """What of a folder belongs to its model: all data in the order of their names, then all weights."""
    data = sorted(name for name in names if _DATA.fullmatch(name))
    return (*data, *sorted(name for name in names if is_weights(name)))


def check_chosen(names: Collection[str], where: str, index: bytes | None = None) -> None:
    """Whether nothing is missing of what a model needs.

    Args:
        names: what is there.
        where: what to call the folder in an error.
        index: the content of `INDEX`, where that is there.

    Raises:
        ModelError: ConfigMissing, Missing, PartMissing.
    """
    if CONFIG not in names:
        raise ModelError(
            f"{where} has no {CONFIG}, so it is no model in this form",
            "Name the folder of a model for MLX or transformers; a GGUF file is named itself.",
            fault=ModelFault.CONFIG_MISSING,
        )
    weights = {name for name in names if is_weights(name)}
    missing = {*_told_by_names(weights), *_told_by_index(index, where)} - weights
    if missing:
        raise ModelError(
            f"{where} lacks weights: {', '.join(sorted(missing)[:5])}",
            "All parts have to be in one folder; fetch it again.",
            fault=ModelFault.PART_MISSING,
        )
    if not weights:
        raise ModelError(
            f"{where} has no weights: no model*.safetensors",
            "Look for a conversion of the model, for MLX those of mlx-community.",
            fault=ModelFault.MISSING,
        )


def _told_by_names(weights: Collection[str]) -> set[str]:
    """All parts of which one part's name speaks."""
    found = set()
    for match in filter(None, map(SHARD.fullmatch, weights)):
        # Of what is named so, at most as many are asked for as there are, and one more that is missing.
        count = min(int(match["count"]), len(weights) + 1)
        found |= {f"{match['stem']}-{n:05d}-of-{match['count']}.safetensors" for n in range(1, count + 1)}
    return found


def _told_by_index(index: bytes | None, where: str) -> set[str]:
    if index is None:
        return set()
    try:
        return {str(name) for name in json.loads(index)["weight_map"].values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _damaged(where, INDEX) from error


@dataclass(frozen=True)
class FolderModel:
    """What the files of a folder say.

    Attributes:
        config: its `config.json`.
        template: how a conversation is written, in Jinja; empty if nobody says.
        tensors: of all its weights, by their names.
    """

    config: Mapping[str, Any]
    template: str
    tensors: Mapping[str, Tensor]


def read_config(data: bytes, where: str) -> Mapping[str, Any]:
    """The settings of a model; those of its text part, where it has several.

    Raises:
        ModelError: ConfigMissing; it is no JSON object.
    """
    told = _json_object(data)
    if told is None:
        raise _damaged(where, CONFIG)
    inner = told.get("text_config")
    return {**told, **inner} if isinstance(inner, dict) else told


def template_of(jinja: bytes | None, template_json: bytes | None, tokenizer_config: bytes | None) -> str:
    """The chat template, from the content of `TEMPLATES`; empty where there is none."""
    if jinja is not None:
        return jinja.decode(errors="replace")
    for data in (template_json, tokenizer_config):
        told = (_json_object(data) or {}).get("chat_template") if data is not None else None
        if isinstance(told, list):
            # Several templates with names; the one for tools is taken by itself where a request has tools.
            named = [one for one in told if isinstance(one, dict)]
            told = "\n".join(str(one.get("template", "")) for one in named)
        if isinstance(told, str) and told:
            return told
    return ""


def facts_of_folder(model: FolderModel) -> ModelFacts:
    """The facts of a model."""
    config, tensors = model.config, model.tensors
    layers = min(_number(config, "num_hidden_layers"), MOST_LAYERS)
    heads = _number(config, "num_attention_heads")
    embedding = _number(config, "hidden_size")
    head_length = _number(config, "head_dim") or embedding // max(heads, 1)
    window = _number(config, "sliding_window") if config.get("use_sliding_window", True) else 0
    rank = _number(config, "kv_lora_rank")
    return ModelFacts(
        title=str(config.get("_name_or_path", "")),
        architecture=str(config.get("model_type", "")),
        quantisation=_quantisation(config, list(tensors.values())),
        parameters=_parameters(tensors, _bits(config)),
        tensor_bytes=sum(tensor.size_bytes for tensor in tensors.values()),
        token_table_bytes=sum(t.size_bytes for name, t in tensors.items() if ".embed_tokens." in name),
        context_tokens=_number(config, "max_position_embeddings"),
        layers=layers,
        embedding=embedding,
        feed_forward=_number(config, "moe_intermediate_size") or _number(config, "intermediate_size"),
        vocabulary=_number(config, "vocab_size"),
        heads=(heads,) * layers,
        kv_heads=(_number(config, "num_key_value_heads") or heads,) * layers,
        key_length=head_length,
        value_length=_number(config, "v_head_dim") or head_length,
        sliding_window=window,
        windowed=_windowed(config, layers, window),
        latent_length=rank + _number(config, "qk_rope_head_dim") if rank else 0,
        state_bytes=0,
        experts=_number(config, "num_local_experts") or _number(config, "num_experts"),
        experts_used=_number(config, "num_experts_per_tok"),
        has_chat_template=bool(model.template),
        supports_tools=has_place_for_tools(model.template),
    )


def _number(config: Mapping[str, Any], key: str) -> int:
    """A number of the settings; 0 for whatever is none, also for one that no model can have."""
    value = config.get(key)
    return value if type(value) is int and 0 <= value < 1 << 32 else 0


def _windowed(config: Mapping[str, Any], layers: int, window: int) -> tuple[bool, ...]:
    """Which layers look back only so far; where nobody says it, the larger estimate: none."""
    kinds = config.get("layer_types")
    if window and isinstance(kinds, list) and len(kinds) == layers:
        return tuple(kind == "sliding_attention" for kind in kinds)
    return (False,) * layers


def _bits(config: Mapping[str, Any]) -> int:
    """Of each weight as MLX packs it; 0 where it does not."""
    told = config.get("quantization")
    return _number(told, "bits") if isinstance(told, dict) else 0


def _quantisation(config: Mapping[str, Any], tensors: Sequence[Tensor]) -> str:
    """What the settings say; else the type that most of the bytes have."""
    if bits := _bits(config):
        return f"{bits}-bit"
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.dtype] += tensor.size_bytes
    return sizes.most_common(1)[0][0] if sizes else ""


def _parameters(tensors: Mapping[str, Tensor], bits: int) -> int:
    """How many numbers the model has: what is packed is unpacked, and its scales are none of the model's."""
    count = 0
    for name, tensor in tensors.items():
        stem, _, last = name.rpartition(".")
        is_packed = bits > 0 and tensors.get(f"{stem}.weight", tensor).dtype == PACKED
        if is_packed and last in {"scales", "biases"}:
            continue
        count += tensor.count * PACKED_BITS // bits if is_packed and last == "weight" else tensor.count
    return count


def cache_type(facts: ModelFacts) -> str:
    """The type of the keys and values that MLX keeps: that of what it computes with, half or whole floats."""
    return "f32" if BITS.get(facts.quantisation) == BITS["F32"] else "f16"


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _damaged(where: str, name: str) -> ModelError:
    return ModelError(
        f"{where}: {name} cannot be read", "Fetch the model again.", fault=ModelFault.CONFIG_MISSING
    )

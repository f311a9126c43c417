"""How much memory a model server of llama.cpp will take, before it is started.

    weights + keys and values + recurrent state + compute buffer + outputs + prompt cache + overhead

Weights, and keys and values, follow from the header exactly.  The compute buffer is what llama.cpp's graph
needs at a time; its terms are those that were found by varying one dimension of a model after the other,
see `tests/agent/test_memory_estimate.py`, which compares them with what llama.cpp reports.
"""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.core.ggml_types import TENSOR_TYPES
from journeyman.core.quantities import bytes_text
from journeyman.model.model_file import ModelFacts

FLOAT_BYTES, HALF_BYTES = 4, 2
# llama.cpp rounds the cells of a cache up to this.
CELLS_PADDING = 256
# Python, the server's threads and what it keeps of requests; measured as resident memory without a model.
OVERHEAD_BYTES = 64_000_000
_BYTES_OF = {name.lower(): size / block for name, block, size in TENSOR_TYPES.values()}


@dataclass(frozen=True)
class ServerLoad:
    """What a server is told that has an effect on its memory.

    Attributes:
        context_tokens: of each slot; 0 for what the model was trained for.
        slots: requests at a time, each with a context of its own.
        cache_type_k, cache_type_v: of keys and values, as llama.cpp names them.
        batch_tokens: of a prompt that are computed at a time (`n_ubatch`).
        flash_attention: whether attention is computed without the whole matrix of scores.
        whole_window_cache: layers with a sliding window keep all tokens all the same (`--swa-full`).
        prompt_cache_bytes: kept of old prompts in host memory (`--cache-ram`).
        extra_bytes: other files that are loaded with it: a draft model, a projector for images.
    """

    context_tokens: int = 0
    slots: int = 1
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    batch_tokens: int = 512
    flash_attention: bool = True
    whole_window_cache: bool = False
    prompt_cache_bytes: int = 0
    extra_bytes: int = 0


@dataclass(frozen=True)
class MemoryEstimate:
    """What a server will take, by what it is for."""

    weights_bytes: int
    cache_bytes: int
    state_bytes: int
    compute_bytes: int
    output_bytes: int
    prompt_cache_bytes: int
    overhead_bytes: int

    @property
    def buffers_bytes(self) -> int:
        """What llama.cpp reports as its buffers."""
        caches = self.cache_bytes + self.state_bytes
        return self.weights_bytes + caches + self.compute_bytes + self.output_bytes

    @property
    def total_bytes(self) -> int:
        """All that the host has to give."""
        return self.buffers_bytes + self.prompt_cache_bytes + self.overhead_bytes

    def explanation(self) -> str:
        """The sum and its large parts, for people."""
        rest = self.total_bytes - self.weights_bytes - self.cache_bytes
        return (
            f"{bytes_text(self.total_bytes)} (weights {bytes_text(self.weights_bytes)}, "
            f"context {bytes_text(self.cache_bytes)}, other {bytes_text(rest)})"
        )


def estimate(facts: ModelFacts, load: ServerLoad) -> MemoryEstimate:
    """The memory of a server.

    Args:
        facts: of the model.
        load: what the server is told.

    Raises:
        ValueError: a type of the cache is not known.
    """
    context = _padded(load.context_tokens or facts.context_tokens)
    window = context
    if facts.sliding_window and not load.whole_window_cache:
        window = min(context, _padded(facts.sliding_window + load.batch_tokens))
    cells = [window if windowed else context for windowed in facts.windowed]
    return MemoryEstimate(
        weights_bytes=facts.tensor_bytes + load.extra_bytes,
        cache_bytes=_cache_bytes(facts, load, cells) * load.slots,
        state_bytes=facts.state_bytes * load.slots,
        compute_bytes=_compute_bytes(facts, load, sorted(set(cells))),
        output_bytes=facts.vocabulary * FLOAT_BYTES * load.slots,
        prompt_cache_bytes=load.prompt_cache_bytes,
        overhead_bytes=OVERHEAD_BYTES,
    )


def _cache_bytes(facts: ModelFacts, load: ServerLoad, cells: list[int]) -> int:
    """Keys and values of all layers, for one slot."""
    key_bytes, value_bytes = _bytes_of(load.cache_type_k), _bytes_of(load.cache_type_v)
    if facts.latent_length:
        # The values are a part of the latent that is kept as the key.
        return int(sum(cells) * facts.latent_length * key_bytes)
    of_one_head = facts.key_length * key_bytes + facts.value_length * value_bytes
    return int(sum(count * heads * of_one_head for count, heads in zip(cells, facts.kv_heads, strict=True)))


def _compute_bytes(facts: ModelFacts, load: ServerLoad, kinds_of_cells: list[int]) -> int:
    """What the graph needs at a time for one batch: masks, scores, and the widest step of a layer."""
    heads, kv_heads = max(facts.heads, default=0), max(facts.kv_heads, default=0)
    query = heads * facts.key_length
    keys = kv_heads * (facts.key_length + facts.value_length)
    feed_forward = facts.feed_forward * max(facts.experts_used, 1)
    widest = 4 * facts.embedding + max(3 * feed_forward, 2 * query + keys)
    # One mask for each kind of cache; attention without the scores takes it in half precision.
    mask = sum(kinds_of_cells) * (HALF_BYTES if load.flash_attention else FLOAT_BYTES)
    scores = 0 if load.flash_attention else max(kinds_of_cells, default=0) * heads * FLOAT_BYTES
    return load.batch_tokens * (widest * FLOAT_BYTES + mask + scores)


def _bytes_of(cache_type: str) -> float:
    try:
        return _BYTES_OF[cache_type]
    except KeyError as error:
        raise ValueError(f"{cache_type!r} is no type of a cache") from error


def _padded(tokens: int) -> int:
    return -(-tokens // CELLS_PADDING) * CELLS_PADDING

"""What the estimate adds up, term by term."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.adapters.model_reading import header_of
from journeyman.core.model_facts import MOST_LAYERS, facts_of
from journeyman.core.model_memory import OVERHEAD_BYTES, ServerLoad, estimate
from journeyman.model.model_file import ModelFacts
from tests.support.shaped_gguf import Shape, write_shaped_gguf

LOAD = ServerLoad(context_tokens=4096)


@pytest.fixture
def facts(tmp_path: Path) -> ModelFacts:
    """Of a model with 4 layers, and 8 heads of 64 numbers."""
    write_shaped_gguf(tmp_path / "m.gguf", Shape())
    return facts_of([header_of(tmp_path / "m.gguf")])


def test_a_header_does_not_choose_our_memory(tmp_path: Path) -> None:
    """A model that says it has four billion layers has as many as any model can have."""
    write_shaped_gguf(tmp_path / "m.gguf", Shape())
    header = header_of(tmp_path / "m.gguf")
    hostile = replace(header, metadata={**header.metadata, "llama.block_count": 2**32 - 1})
    assert len(facts_of([hostile]).heads) == MOST_LAYERS


def test_each_slot_has_keys_and_values_of_its_own(facts: ModelFacts) -> None:
    """Layers times cells times heads times their length, in two bytes, for each slot."""
    one = estimate(facts, LOAD)
    assert one.cache_bytes == 4 * 4096 * 8 * (64 + 64) * 2
    assert estimate(facts, replace(LOAD, slots=3)).cache_bytes == 3 * one.cache_bytes


def test_grouped_heads_share_keys_and_values(facts: ModelFacts) -> None:
    """An eighth of the heads is an eighth of the cache, also where each layer has another number."""
    one = estimate(facts, LOAD).cache_bytes
    assert estimate(replace(facts, kv_heads=(1, 1, 1, 1)), LOAD).cache_bytes == one // 8
    assert estimate(replace(facts, kv_heads=(8, 0, 8, 0)), LOAD).cache_bytes == one // 2


@pytest.mark.parametrize(
    ("name", "bytes_each"), [("f32", 4), ("f16", 2), ("q8_0", 1.0625), ("q5_1", 0.75), ("q4_0", 0.5625)]
)
def test_types_of_the_cache_count_their_scales(facts: ModelFacts, name: str, bytes_each: float) -> None:
    """The bytes of an element include its share of the block's scale."""
    found = estimate(facts, replace(LOAD, cache_type_k=name, cache_type_v=name)).cache_bytes
    assert found == 4 * 4096 * 8 * 128 * bytes_each


def test_an_unknown_type_of_cache_is_an_error(facts: ModelFacts) -> None:
    """Nothing is guessed."""
    with pytest.raises(ValueError, match="no type of a cache"):
        estimate(facts, replace(LOAD, cache_type_k="q99"))


def test_a_window_bounds_its_layers_unless_all_is_kept(facts: ModelFacts) -> None:
    """Layers with a sliding window keep the window and a batch, the others everything."""
    windowed = replace(facts, sliding_window=512, windowed=(True, True, True, False))
    of_one_cell = 8 * 128 * 2
    assert estimate(windowed, LOAD).cache_bytes == (3 * 1024 + 4096) * of_one_cell
    whole = replace(LOAD, whole_window_cache=True)
    assert estimate(windowed, whole).cache_bytes == 4 * 4096 * of_one_cell


def test_a_latent_stands_for_keys_and_values(facts: ModelFacts) -> None:
    """With latent attention one vector of a token is kept in each layer."""
    assert estimate(replace(facts, latent_length=576), LOAD).cache_bytes == 4 * 4096 * 576 * 2


def test_a_recurrent_state_does_not_grow_with_the_context(facts: ModelFacts) -> None:
    """It is kept once for each slot."""
    recurrent = replace(facts, state_bytes=1000)
    assert estimate(recurrent, replace(LOAD, slots=2, context_tokens=65_536)).state_bytes == 2000


def test_without_a_context_the_trained_one_counts(facts: ModelFacts) -> None:
    """A server that is told nothing takes what the model was trained for."""
    assert estimate(facts, ServerLoad()) == estimate(facts, ServerLoad(context_tokens=32_768))


def test_the_sum_has_all_terms(facts: ModelFacts) -> None:
    """Prompt cache, other files and the process itself come on top of the buffers."""
    plain = estimate(facts, LOAD)
    more = estimate(facts, replace(LOAD, prompt_cache_bytes=10**9, extra_bytes=10**8))
    assert plain.total_bytes == plain.buffers_bytes + OVERHEAD_BYTES
    assert more.total_bytes - plain.total_bytes == 10**9 + 10**8
    assert more.buffers_bytes - plain.buffers_bytes == 10**8
    assert "weights" in plain.explanation()


def test_all_scores_at_once_cost_memory(facts: ModelFacts) -> None:
    """Without flash attention the scores of a batch are kept for all heads."""
    flash, plain = estimate(facts, LOAD), estimate(facts, replace(LOAD, flash_attention=False))
    assert plain.compute_bytes - flash.compute_bytes == 512 * 4096 * (8 * 4 + 2)

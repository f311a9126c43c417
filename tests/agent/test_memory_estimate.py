"""The memory estimate against the buffers that llama.cpp itself reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

from journeyman.adapters.model_reading import header_of
from journeyman.core.model_allocation import reported_buffers as buffers_in
from journeyman.core.model_facts import facts_of
from journeyman.core.model_memory import ServerLoad, estimate
from tests.support import reported_buffers
from tests.support.shaped_gguf import Shape, write_shaped_gguf
from tests.support.waiting import eventually

MIB = 1 << 20
LEAST_CACHE_BYTES = 64 * MIB
# What the server logs once all buffers are there.
LAST_LINE = "n_slots = "

MHA = Shape()
GQA = Shape(heads=32, kv_heads=8, head_length=64, embedding=2048, feed_forward=5632, vocabulary=32_000)
MQA = Shape(heads=16, kv_heads=1, head_length=256, layers=16, embedding=1024, feed_forward=4096)
SWA = Shape(architecture="gemma3", window=512, layers=12, tied=True, vocabulary=16_000)
MOE = Shape(experts=8, experts_used=2, embedding=1024, feed_forward=1792, kv_heads=4, head_length=128)
F16 = ServerLoad(context_tokens=16_384)
Q8 = replace(F16, context_tokens=32_768, cache_type_k="q8_0", cache_type_v="q8_0")
Q4 = replace(F16, context_tokens=65_536, cache_type_k="q4_0", cache_type_v="q4_0")
MIXED = replace(Q8, cache_type_v="q5_1")
SLOTS = replace(F16, context_tokens=8192, slots=4)
NO_FLASH = replace(F16, flash_attention=False)

CASES = [
    pytest.param(MHA, F16, id="heads of their own"),
    pytest.param(GQA, F16, id="grouped heads"),
    pytest.param(replace(GQA, weight_type="Q4_0"), Q8, id="grouped heads, 4 bits, cache of 8"),
    pytest.param(MQA, MIXED, id="one head, cache of 8 and 5 bits"),
    pytest.param(replace(MQA, weight_type="Q8_0"), Q4, id="one head, cache of 4 bits"),
    pytest.param(SWA, F16, id="sliding window"),
    pytest.param(replace(MOE, weight_type="Q4_K"), SLOTS, id="experts, four slots"),
    pytest.param(GQA, NO_FLASH, id="all scores at once"),
]
SHAPES = {
    "heads of their own": MHA,
    "grouped heads": GQA,
    "grouped heads, 8 to 1": replace(GQA, kv_heads=4, layers=22),
    "one head": MQA,
    "sliding window": SWA,
    "experts": MOE,
}
LOADS = {
    "f16": F16,
    "f16, 40000 tokens": replace(F16, context_tokens=40_000),
    "q8_0": Q8,
    "q4_0": Q4,
    "q8_0 and q5_1": MIXED,
    "four slots": SLOTS,
    "no flash attention": NO_FLASH,
}
MANY = [
    pytest.param(replace(SHAPES[shape], weight_type=kind), LOADS[load], id=f"{shape} | {kind} | {load}")
    for shape, kind, load in product(SHAPES, ["F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"], LOADS)
]


@dataclass(frozen=True)
class Reported:
    """What llama.cpp said, in bytes."""

    cache_bytes: int
    total_bytes: int


def reported(model: Path, load: ServerLoad) -> Reported:
    told = {
        "context": load.context_tokens, "slots": load.slots, "flash": load.flash_attention,
        "k": load.cache_type_k.upper(), "v": load.cache_type_v.upper(),
    }  # fmt: skip
    command = [sys.executable, reported_buffers.__file__, str(model), json.dumps(told)]
    log = model.with_suffix(".log")
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        eventually(
            lambda: server.poll() is not None or LAST_LINE in log.read_text(errors="replace"),
            within_seconds=120,
            every_seconds=0.05,
        )
    finally:
        server.kill()
        server.wait()
    text = log.read_text(errors="replace")
    found = buffers_in(text)
    assert {"model", "KV", "compute", "output"} <= found.keys(), text[-2000:]
    return Reported(found["KV"], sum(found.values()))


Record = Callable[[str, object], None]


def check(shape: Shape, load: ServerLoad, folder: Path, record: Record) -> None:
    model = folder / "shaped.gguf"
    write_shaped_gguf(model, shape)
    expected = estimate(facts_of([header_of(model)]), load)
    found = reported(model, load)
    # For docs/evidence/memory-estimates.md: `--junitxml` writes them down.
    record("estimated_bytes", expected.buffers_bytes)
    record("reported_bytes", found.total_bytes)
    assert found.cache_bytes >= LEAST_CACHE_BYTES, "the case is too small to say anything"
    assert expected.cache_bytes == pytest.approx(found.cache_bytes, rel=0.001)
    assert expected.buffers_bytes == pytest.approx(found.total_bytes, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "load"), CASES)
def test_the_estimate_is_what_llama_cpp_takes(
    shape: Shape, load: ServerLoad, tmp_path: Path, record_property: Record
) -> None:
    """All buffers together within a tenth, and the cache of keys and values to a thousandth."""
    check(shape, load, tmp_path, record_property)


@pytest.mark.full
@pytest.mark.parametrize(("shape", "load"), MANY)
def test_the_estimate_holds_over_a_grid(
    shape: Shape, load: ServerLoad, tmp_path: Path, record_property: Record
) -> None:
    """The same for each shape with each quantisation, cache and context."""
    check(shape, load, tmp_path, record_property)

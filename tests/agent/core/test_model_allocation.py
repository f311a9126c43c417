"""What a server took, out of its own words."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman.core.model_allocation import (
    MOST_REMEMBERED,
    Allocation,
    allocation_of,
    better_known,
    from_json,
    need_of,
    reported_buffers,
    to_json,
)
from journeyman.core.model_memory import OVERHEAD_BYTES, MemoryEstimate

MIB = 1 << 20
# Of builds of 2026, which begin their lines with a time and a level, and of 2024.
NEW = """\
0.00.008.906 I load_tensors:   CPU_Mapped model buffer size =   100.50 MiB
0.00.008.907 I load_tensors:   CPU_REPACK model buffer size =    50.00 MiB
0.00.009.000 I llama_context:        CPU  output buffer size =     0.50 MiB
0.00.009.024 I llama_kv_cache:        CPU KV buffer size =    40.00 MiB
0.00.009.025 I llama_kv_cache:        CPU KV buffer size =     8.00 MiB
0.00.009.908 I sched_reserve:        CPU compute buffer size =    20.00 MiB
"""
OLD = """\
llm_load_tensors:        CPU buffer size =  1.00 MiB
llm_load_tensors:      CUDA0 model buffer size =  3000.00 MiB
llm_load_tensors:  CUDA_Host model buffer size =   100.00 MiB
llama_kv_cache_init:      CUDA0 KV buffer size =   500.00 MiB
llama_new_context_with_model:      CUDA0 compute buffer size =   300.00 MiB
llama_new_context_with_model:  CUDA_Host compute buffer size =    12.00 MiB
"""
METAL = """\
load_tensors:   CPU_Mapped model buffer size =    70.00 MiB
load_tensors:  MTL0_Mapped model buffer size =   900.00 MiB
llama_kv_cache:       MTL0 KV buffer size =   128.00 MiB
sched_reserve:       MTL0 compute buffer size =   100.00 MiB
"""


@pytest.mark.parametrize(
    ("log", "mib"),
    [
        (NEW, 169),
        ("print_info: file size   = 101.50 MiB (4.51 BPW)\n" + NEW, 170),
        ("print_info: file size   = 1.00 GiB (4.51 BPW)\n" + NEW, 219),
        (NEW.replace("CPU_Mapped", "CPU"), 219),
        (OLD, 112),
        (METAL, 1198),
    ],
    ids=[
        "mapped and reordered, the file unknown",
        "mapped and reordered",
        "a part of it on a card",
        "read and reordered",
        "a card of its own",
        "memory that is shared",
    ],
)
def test_buffers_of_the_host_are_added_up(log: str, mib: int) -> None:
    """Those of a card are not the host's; reordered weights and what they were made of count once."""
    assert sum(reported_buffers(log).values()) == mib * MIB
    assert allocation_of(log, 5) == Allocation(mib * MIB + OVERHEAD_BYTES, is_reported=True)


@pytest.mark.parametrize("log", ["", *NEW.split("0.00.009.024")])
def test_a_log_that_is_not_whole_is_not_believed(log: str) -> None:
    """Resident memory is taken then, if anybody knows it."""
    assert allocation_of(log, 7) == Allocation(7, is_reported=False)
    assert allocation_of(log, 0) is None


def test_what_was_reported_last_is_known_best() -> None:
    """Another build may take less; a lower bound never takes the place of it, or of a higher one."""
    told, more, bound = (
        Allocation(5, is_reported=True),
        Allocation(9, is_reported=True),
        Allocation(7, is_reported=False),
    )
    assert better_known(None, bound) == bound
    assert better_known(bound, told) == told
    assert better_known(told, bound) == told
    assert better_known(more, told) == told
    assert better_known(bound, Allocation(6, is_reported=False)) == bound


def test_the_need_is_what_was_reported_or_the_larger_of_two_guesses() -> None:
    """Without anything known it is the estimate, and without that nobody knows."""
    expected = MemoryEstimate(100, 0, 0, 0, 0, 0, 0)

    def total(*of: Any) -> int | None:
        need = need_of(*of)
        return None if need is None else need.total_bytes

    assert total(None, None) is None
    assert total(expected, None) == 100
    assert total(expected, Allocation(60, is_reported=True)) == 60
    assert total(expected, Allocation(60, is_reported=False)) == 100
    assert total(expected, Allocation(160, is_reported=False)) == 160
    assert total(None, Allocation(60, is_reported=False)) == 60


def test_what_is_remembered_is_read_again_and_bounded() -> None:
    """What was learned last stays; anything else in the file is nothing."""
    many = {str(number): Allocation(number + 1, number % 2 == 0) for number in range(MOST_REMEMBERED + 3)}
    assert list(from_json(to_json(many)).items()) == list(many.items())[3:]
    for strange in (None, {}, {"format": 2, "allocations": {}}, {"format": 1, "allocations": []}):
        assert from_json(strange) == {}
    assert (
        from_json({"format": 1, "allocations": {"a": 5, "b": {"totalBytes": -1, "isReported": True}}}) == {}
    )

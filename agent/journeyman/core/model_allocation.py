"""What a model server took when it ran: the buffers that llama.cpp reports, or else its resident memory.

    load_tensors:   CPU_Mapped model buffer size =   270.88 MiB
    llama_kv_cache:        CPU KV buffer size =   180.00 MiB
    sched_reserve:        CPU compute buffer size =    98.25 MiB

Buffers are what a server was given, and so what it may come to use; resident memory is what it has touched so
far, and so no more than a lower bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.core.model_memory import OVERHEAD_BYTES, MemoryEstimate
from journeyman.core.quantities import bytes_text

FORMAT_VERSION = 1
# More than any host serves; what was used least lately is forgotten.
MOST_REMEMBERED = 200
# An estimate that is exceeded by more than this is wrong, and not only rounded.
TOLERANCE = 1.1
MIB = 1 << 20
BUFFER = re.compile(r"(\S+) +(model|KV|RS|compute|output) buffer size = +([\d.]+) MiB")
# Memory of a card's own is not the host's; what it shares with the host is called `CUDA_Host` and the like.
OWN_MEMORY = re.compile(r"(CUDA|ROCm|Vulkan|SYCL|CANN|MUSA)\d+")
FILE_SIZE = re.compile(r"print_info: file size += ([\d.]+) ([MG])iB")
# Weights in an order that suits the processor.  Those that they were made of lie in the mapped range as well
# and are not needed any more: both together never take more than the weights of the file.
REORDERED = re.compile("REPACK")
MAPPED = re.compile("_Mapped$")


@dataclass(frozen=True)
class Allocation:
    """What one server took of the host's memory.

    Attributes:
        total_bytes: all of it, with what the program itself needs.
        is_reported: whether the runtime has told it; otherwise it is resident memory, and a lower bound.
    """

    total_bytes: int
    is_reported: bool


@dataclass(frozen=True)
class Need:
    """What a server will take.

    Attributes:
        total_bytes: of the host's memory.
        explanation: the sum for people, and where it comes from.
    """

    total_bytes: int
    explanation: str


def reported_buffers(log: str) -> Mapping[str, int]:
    """The buffers in the host's memory that a log of llama.cpp names, in bytes by kind; empty without any."""
    found = [
        (device, kind, float(size) * MIB)
        for device, kind, size in BUFFER.findall(log)
        if not OWN_MEMORY.fullmatch(device)
    ]
    sums: dict[str, float] = {}
    for _, kind, size in found:
        sums[kind] = sums.get(kind, 0.0) + size
    devices = {device for device, _, _ in found}
    if any(map(MAPPED.search, devices)) and any(map(REORDERED.search, devices)):
        whole = sum(float(size) * MIB * (1024 if unit == "G" else 1) for size, unit in FILE_SIZE.findall(log))
        once = sum(size for device, kind, size in found if kind == "model" and not REORDERED.search(device))
        sums["model"] = min(sums["model"], max(whole, once))
    return {kind: round(size) for kind, size in sums.items()}


def allocation_of(log: str, resident_bytes: int) -> Allocation | None:
    """What a server took that has generated a token.

    Args:
        log: of the server.
        resident_bytes: of all its processes; 0 if nobody knows.

    Returns:
        None if nobody can tell.
    """
    buffers = reported_buffers(log)
    # A log that has been cut at its beginning does not name all of them.
    if {"model", "compute"} <= buffers.keys():
        return Allocation(sum(buffers.values()) + OVERHEAD_BYTES, is_reported=True)
    return Allocation(resident_bytes, is_reported=False) if resident_bytes else None


def better_known(known: Allocation | None, found: Allocation) -> Allocation:
    """The better of two findings about servers of the same configuration.

    What was reported last is right, as another build of the runtime may take another amount.  Of two lower
    bounds that is the higher one.
    """
    if known is None or found.is_reported:
        return found
    return known if known.is_reported or known.total_bytes >= found.total_bytes else found


def need_of(expected: MemoryEstimate | None, taken: Allocation | None) -> Need | None:
    """What a server will take: what it took, where that is known; None if nobody can tell.

    Args:
        expected: by the header of its model.
        taken: by a server of the same configuration.
    """
    estimated = None if expected is None else Need(expected.total_bytes, expected.explanation())
    if taken is None:
        return estimated
    measured = Need(taken.total_bytes, f"{bytes_text(taken.total_bytes)} (as it took before)")
    if taken.is_reported or estimated is None:
        return measured
    return max(estimated, measured, key=lambda need: need.total_bytes)


def is_underestimated(expected: MemoryEstimate | None, taken: Allocation) -> bool:
    """Whether a server took so much more than was expected that the estimate is wrong."""
    return expected is not None and taken.total_bytes > TOLERANCE * expected.total_bytes


def to_json(taken: Mapping[str, Allocation]) -> dict[str, Any]:
    """What is remembered, by the fingerprint of the configuration; the last ones stay."""
    kept = list(taken.items())[-MOST_REMEMBERED:]
    listed = {key: {"totalBytes": one.total_bytes, "isReported": one.is_reported} for key, one in kept}
    return {"format": FORMAT_VERSION, "allocations": listed}


def from_json(value: Mapping[str, Any] | None) -> dict[str, Allocation]:
    """Reads what `to_json` made; nothing is remembered where it is something else."""
    found: dict[str, Allocation] = {}
    match value:
        case {"format": 1, "allocations": dict(listed)}:
            for key, one in listed.items():
                match one:
                    case {"totalBytes": int(total), "isReported": bool(is_reported)} if total > 0:
                        found[str(key)] = Allocation(total, is_reported)
    return found

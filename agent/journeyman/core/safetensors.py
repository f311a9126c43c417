"""Reads the header of a safetensors file: which tensors it holds, and whether all of them are there.

Format: https://github.com/huggingface/safetensors#format.  Eight bytes with the length of the header, little
endian; the header in JSON; then the tensors, one behind the other without a gap.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.core.gguf import DOWNLOAD_AGAIN
from journeyman.errors import ModelError, ModelFault

LENGTH = struct.Struct("<Q")
# The format allows 100 MB, but what is parsed takes ten times as much memory, and real headers have a few MB.
LONGEST_HEADER_BYTES = 32_000_000
MOST_DIMENSIONS = 16
METADATA = "__metadata__"
BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}


@dataclass(frozen=True)
class Tensor:
    """One tensor.

    Attributes:
        dtype: as the format names it, e.g. `BF16`.
        shape: its dimensions.
        begin, end: where it lies, in bytes behind the header.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def count(self) -> int:
        """How many numbers it holds, as they are stored: packed ones count as one."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.end - self.begin

    @property
    def is_consistent(self) -> bool:
        """Whether its place is as long as its shape wants; of a type that is newer than this, it is."""
        bits = BITS.get(self.dtype)
        return bits is None or self.count * bits == self.size_bytes * 8


def check_begin(data: bytes, name: str) -> None:
    """Judges the first bytes of a file.

    Args:
        data: its begin, eight bytes or more unless there are no more.
        name: what to call the file in an error.

    Raises:
        ModelError: WebPage, NotSafetensors.
    """
    if len(data) < LENGTH.size or LENGTH.unpack_from(data)[0] <= LONGEST_HEADER_BYTES:
        return
    if data.lstrip()[:1] == b"<":
        advice = "Download the .safetensors file itself."
        raise ModelError(f"{name} is a web page, no model", advice, fault=ModelFault.WEB_PAGE)
    raise ModelError(
        f"{name} is no safetensors file: it begins with {data[:8]!r}",
        "Fetch the model as safetensors; a Git LFS pointer in its place needs `git lfs pull`.",
        fault=ModelFault.NOT_SAFETENSORS,
    )


def read_tensors(data: memoryview, name: str) -> Mapping[str, Tensor]:
    """The tensors of a whole file, by their names.

    Args:
        data: the file's content, as a rule a memory map.
        name: what to call the file in an error.

    Raises:
        ModelError: Empty, WebPage, NotSafetensors, HeaderCut, OffsetsWrong, DataCut.
    """
    if not data:
        raise ModelError(f"{name} is empty", DOWNLOAD_AGAIN, fault=ModelFault.EMPTY)
    check_begin(bytes(data[:64]), name)
    try:
        (length,) = LENGTH.unpack_from(data)
        start = LENGTH.size + length
        tensors = _tensors(bytes(data[LENGTH.size : start]), length)
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{name} is cut off or damaged in its header", DOWNLOAD_AGAIN, fault=ModelFault.HEADER_CUT
        ) from error
    _check_places(tensors, len(data) - start, name)
    return tensors


def _tensors(header: bytes, length: int) -> dict[str, Tensor]:
    """Raises ValueError, TypeError or KeyError where it is no header."""
    if len(header) != length:
        raise ValueError("the header is cut off")
    told = json.loads(header.decode())
    return {str(key): _tensor(value) for key, value in told.items() if key != METADATA}


def _tensor(told: Mapping[str, Any]) -> Tensor:
    shape, (begin, end) = told["shape"], told["data_offsets"]
    numbers = (*shape, begin, end)
    if len(shape) > MOST_DIMENSIONS or not all(type(one) is int and 0 <= one < 1 << 64 for one in numbers):
        raise ValueError("no shape, or no place")
    return Tensor(str(told["dtype"]), tuple(shape), begin, end)


def _check_places(tensors: Mapping[str, Tensor], size: int, name: str) -> None:
    """Every byte has to belong to one tensor, and every tensor has to have all of its bytes."""
    here = 0
    for key, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.begin != here or tensor.end < here or not tensor.is_consistent:
            raise ModelError(
                f"{name} is damaged: tensor {key[:100]!r} lies at bytes {tensor.begin} to {tensor.end}, "
                f"and not where its shape and the one before it say",
                DOWNLOAD_AGAIN,
                fault=ModelFault.OFFSETS_WRONG,
            )
        here = tensor.end
    if here > size:
        raise ModelError(
            f"{name} is cut off: its tensors end at byte {here}, the file at {size}",
            DOWNLOAD_AGAIN,
            fault=ModelFault.DATA_CUT,
        )
    if here < size:
        raise ModelError(
            f"{name} is damaged: {size - here} bytes lie behind its last tensor",
            DOWNLOAD_AGAIN,
            fault=ModelFault.OFFSETS_WRONG,
        )

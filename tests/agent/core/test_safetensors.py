"""A safetensors file is taken where the format's own library takes it, and each damage has a name."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize

from journeyman.core.safetensors import LONGEST_HEADER_BYTES, read_tensors
from journeyman.errors import ModelError, ModelFault

Header = dict[str, Any]


def header() -> Header:
    """Three tensors of 32, 8 and 8 bytes."""
    return {
        "__metadata__": {"format": "mlx"},
        "a": {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [32, 40]},
        "c": {"dtype": "U32", "shape": [2], "data_offsets": [40, 48]},
    }


def file_of(told: object, data: bytes = bytes(48)) -> bytes:
    text = json.dumps(told).encode()
    return struct.pack("<Q", len(text)) + text + data


def fault_of(data: bytes) -> ModelFault | None:
    try:
        read_tensors(memoryview(data), "m.safetensors")
    except ModelError as error:
        return error.fault if error.advice else None
    return None


def test_all_tensors_are_told() -> None:
    """With their types, shapes and sizes, and without the metadata."""
    tensors = read_tensors(memoryview(file_of(header())), "m")
    assert {name: (t.dtype, t.shape, t.count, t.size_bytes) for name, t in tensors.items()} == {
        "a": ("F32", (2, 4), 8, 32),
        "b": ("BF16", (4,), 4, 8),
        "c": ("U32", (2,), 2, 8),
    }


def changed(name: str, **told: object) -> Header:
    return {**header(), name: {**header()[name], **told}}


DAMAGED: dict[str, tuple[bytes, ModelFault]] = {
    "nothing": (b"", ModelFault.EMPTY),
    "three bytes": (b"abc", ModelFault.HEADER_CUT),
    "cut in the header": (file_of(header())[:60], ModelFault.HEADER_CUT),
    "cut in the weights": (file_of(header())[:-5], ModelFault.DATA_CUT),
    "a web page": (b"<!DOCTYPE html><html><body>Log in</body></html>", ModelFault.WEB_PAGE),
    "a pointer of LFS": (b"version https://git-lfs.github.com/spec/v1", ModelFault.NOT_SAFETENSORS),
    "a GGUF file": (b"GGUF\3\0\0\0\1\0\0\0", ModelFault.NOT_SAFETENSORS),
    "overlapping": (file_of(changed("b", data_offsets=[24, 32])), ModelFault.OFFSETS_WRONG),
    "with a gap": (file_of(changed("c", data_offsets=[44, 52]), bytes(52)), ModelFault.OFFSETS_WRONG),
    "backwards": (file_of(changed("c", data_offsets=[40, 32])), ModelFault.OFFSETS_WRONG),
    "too short for its shape": (file_of(changed("a", shape=[2, 5])), ModelFault.OFFSETS_WRONG),
    "bytes behind": (file_of(header(), bytes(49)), ModelFault.OFFSETS_WRONG),
    "no object": (file_of([1]), ModelFault.HEADER_CUT),
    "no place": (file_of({"a": {"dtype": "F32", "shape": [2]}}), ModelFault.HEADER_CUT),
    "negative": (file_of(changed("a", shape=[-2, -4])), ModelFault.HEADER_CUT),
    "no numbers": (file_of(changed("a", shape=[2.0, True])), ModelFault.HEADER_CUT),
    "too many dimensions": (file_of(changed("a", shape=[1] * 17)), ModelFault.HEADER_CUT),
    "deep": (struct.pack("<Q", 100_000) + b"[" * 100_000, ModelFault.HEADER_CUT),
    "no text": (struct.pack("<Q", 4) + b"\xff\xff\xff\xff", ModelFault.HEADER_CUT),
    "huge": (struct.pack("<Q", LONGEST_HEADER_BYTES + 1) + b"{}", ModelFault.NOT_SAFETENSORS),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_each_damage_has_a_name(name: str) -> None:
    """What is empty, cut, overlapping, something else or nonsense is told apart."""
    data, fault = DAMAGED[name]
    assert fault_of(data) is fault


def test_a_type_that_is_newer_than_ours_is_measured_by_its_place() -> None:
    """The runtime may know it, so it is no fault."""
    tensors = read_tensors(memoryview(file_of(changed("a", dtype="F3"))), "m")
    assert tensors["a"].size_bytes == 32


PLACES = st.integers(0, 56)
TENSOR = st.fixed_dictionaries({
    "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "I64"]),
    "shape": st.lists(st.sampled_from([0, 1, 2, 4, 8, 2**40]), max_size=3),
    "data_offsets": st.tuples(PLACES, PLACES).map(list),
})  # fmt: skip


def library_takes(data: bytes) -> bool:
    try:
        deserialize(data)  # type: ignore[no-untyped-call]  # The library has no types for it.
    except SafetensorError:
        return False
    return True


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), TENSOR, max_size=3), st.integers(0, 56), st.integers(0, 400))
def test_the_library_judges_alike(told: Header, size: int, cut: int) -> None:
    """Whatever places a header names, and wherever the file ends, we take what the library takes."""
    mended = {**header(), **told} if cut % 2 else told
    data = file_of(mended, bytes(size))
    data = data[: len(data) - cut % 7] if cut % 3 == 0 else data
    assert (fault_of(data) is None) is library_takes(data)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 300), st.integers(0, 255), st.integers(0, 3))
def test_the_library_refuses_what_is_damaged_alike(position: int, byte: int, kind: int) -> None:
    """One byte changed, deleted or doubled: who takes it and who does not agree, but for unknown types."""
    whole = file_of(header())
    at = position % len(whole)
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: whole[:at] + bytes([byte]) + whole[at + 1 :],
        lambda: whole[:at] + whole[at + 1 :],
        lambda: whole[:at] + whole[at : at + 1] * 2 + whole[at + 1 :],
        lambda: whole[:at],
    )
    data = changes[kind]()
    if fault_of(data) is not None:
        assert not library_takes(data)

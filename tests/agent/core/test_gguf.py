"""Reading model files that are whole, cut, or something else."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.gguf import read_header
from journeyman.errors import ModelError


@pytest.fixture(scope="module")
def whole(tiny_model: Path) -> bytes:
    return tiny_model.read_bytes()


def test_a_header_is_read(whole: bytes) -> None:
    """Name, architecture, context and chat template are found; arrays are passed over."""
    header = read_header(memoryview(whole), "m")
    assert (header.version, header.tensor_count) == (3, 21)
    assert (header.architecture, header.context_tokens) == ("llama", 2048)
    assert header.chat_template
    assert "tokenizer.ggml.tokens" not in header.metadata


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"GGML" + bytes(100), "older than GGUF"),
        (b"GGUF", "cut off or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 99, 0, 0), "version 99"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63), "cut off or damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 77), "cut off or damaged"),
    ],
)
def test_what_is_no_model_is_told_apart(content: bytes, message: str) -> None:
    """Each kind of wrong file has its sentence, which names the file."""
    with pytest.raises(ModelError, match=message) as caught:
        read_header(memoryview(content), "some.gguf")
    assert "some.gguf" in caught.value.message
    assert caught.value.advice


def test_a_cut_file_is_refused_wherever_the_header_is_cut(whole: bytes) -> None:
    """No prefix of a model passes for the model, up to the last tensor."""
    for size in (*range(0, 12_000, 97), len(whole) // 2):
        with pytest.raises(ModelError):
            read_header(memoryview(whole[:size]), "m")


@given(st.binary(max_size=200))
def test_no_content_breaks_the_reader(content: bytes) -> None:
    """Whatever follows the magic, the answer is a header or a ModelError."""
    data = b"GGUF" + struct.pack("<I", 3) + content
    with contextlib.suppress(ModelError):
        assert read_header(memoryview(data), "m").version == 3

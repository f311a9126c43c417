"""Finds and deletes what lies in the model store for nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from journeyman.adapters.model_blobs import FACTS_SUFFIX, BlobShelf


@dataclass
class Waste:
    """What was found.

    Attributes:
        freed_bytes: what the disk got back, or would get.
        removed: the files, below the store.
        kept: files that nothing refers to, but that are loaded, being fetched or were not asked for.
    """

    freed_bytes: int = 0
    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)


def collect(
    shelf: BlobShelf,
    *,
    named: Callable[[], Collection[str]],
    loaded: Callable[[str], bool],
    parts: bool,
    dry_run: bool,
) -> Waste:
    """Deletes what no name refers to, nobody fetches and no server has loaded.

    Args:
        shelf: the weights.
        named: the digests to which names refer; asked again for each file, once it is locked.
        loaded: whether a server has loaded what has that digest.
        parts: also what came of fetches that broke off.
        dry_run: only say what would be deleted.

    Raises:
        OSError: the disk.
    """
    waste = Waste()
    leaving = []
    for folder in sorted(shelf.sets.glob("*")):
        is_waste = _not_in(folder.name, named, loaded)
        if is_waste():
            is_gone = dry_run or shelf.remove_set(folder, is_waste)
            (waste.removed if is_gone else waste.kept).append(f"sets/{folder.name}")
            leaving += [folder] if is_gone else []

    def referred() -> set[str]:
        return {*named(), *_in_sets(shelf, leaving)}

    for path in sorted(shelf.blobs.glob("*")):
        if path.name not in referred():
            _note(waste, path, shelf.collect(path, _not_in(path.name, referred, loaded), dry_run=dry_run))
    for path in sorted(shelf.parts.glob("*")):
        if path.suffix != FACTS_SUFFIX:
            _note(waste, path, shelf.collect(path, lambda: parts, dry_run=dry_run))
    _remove_lone_facts(shelf)
    return waste


def _not_in(
    digest: str, referred: Callable[[], Collection[str]], loaded: Callable[[str], bool]
) -> Callable[[], bool]:
    return lambda: digest not in referred() and not loaded(digest)


def _note(waste: Waste, path: Path, freed: int | None) -> None:
    where = f"{path.parent.name}/{path.name}"
    (waste.kept if freed is None else waste.removed).append(where)
    waste.freed_bytes += freed or 0


def _in_sets(shelf: BlobShelf, leaving: Collection[Path]) -> Iterator[str]:
    """The digests of the blobs to which sets that stay have links."""
    for link in shelf.sets.glob("*/*"):
        if link.parent not in leaving:
            yield link.readlink().name


def _remove_lone_facts(shelf: BlobShelf) -> None:
    for facts in shelf.parts.glob(f"*{FACTS_SUFFIX}"):
        if not facts.with_suffix("").exists():
            facts.unlink(missing_ok=True)

"""JSON on disk that survives a power cut: one object (`JsonFile`), or a spool of them (`JsonSpool`)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from journeyman.errors import HostError
from journeyman.ports import DeadLetter, JsonObject
from journeyman_updater.contract import write_durably
from journeyman_updater.contract.durable import sync_directory

log = structlog.get_logger(__name__)

# A folder that nobody ever looks into must not fill the disk.
DEAD_LETTERS_KEPT = 100


class JsonFile:
    """The ports `Document` and `RemovableDocument` on a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> JsonObject | None:
        return _read(self._path)

    def save(self, value: Mapping[str, Any]) -> None:
        with _explained(self._path):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(self._path, json.dumps(value, sort_keys=True).encode())

    def remove(self) -> None:
        with _explained(self._path):
            if self._path.exists():
                self._path.unlink()
                sync_directory(self._path.parent)


class JsonSpool:
    """The port `Spool` on a folder; `set-aside/` below it holds what could not be delivered or read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._set_aside = folder / "set-aside"

    def put(self, entry_id: str, value: Mapping[str, Any]) -> None:
        with _explained(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(self._path(entry_id), json.dumps(value, sort_keys=True).encode())

    def entries(self) -> list[tuple[str, JsonObject]]:
        found = []
        for path in sorted(self._folder.glob("*.json"), key=_age):
            value = _read(path)
            if value is not None:
                found.append((path.stem, value))
        return found

    def remove(self, entry_id: str) -> None:
        with _explained(self._folder):
            self._path(entry_id).unlink(missing_ok=True)
            sync_directory(self._folder)

    def set_aside(self, entry_id: str, why: str) -> None:
        _set_aside(self._path(entry_id), self._set_aside)
        with _explained(self._set_aside):
            write_durably(self._set_aside / f"{entry_id}.why", why.encode())
            for path in sorted(self._set_aside.glob("*.json"), key=_age)[:-DEAD_LETTERS_KEPT]:
                path.unlink()
                path.with_suffix(".why").unlink(missing_ok=True)

    def dead_letters(self) -> list[DeadLetter]:
        letters = []
        for path in sorted(self._set_aside.glob("*.json"), key=_age):
            try:
                value = json.loads(path.read_bytes())
            except (OSError, ValueError):
                value = None
            reason = path.with_suffix(".why")
            why = reason.read_text(errors="replace") if reason.is_file() else ""
            letters.append(DeadLetter(path.stem, why, value if isinstance(value, dict) else None, str(path)))
        return letters

    def _path(self, entry_id: str) -> Path:
        return self._folder / f"{entry_id}.json"


def _read(path: Path) -> JsonObject | None:
    """Reads one object; a file that is none is set aside, so that one bad file never stops an agent."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("unreadable_file_set_aside", path=str(path), error=str(error))
        value = None
    if isinstance(value, dict):
        return value
    _set_aside(path, path.parent / "set-aside")
    return None


def _set_aside(path: Path, folder: Path) -> None:
    with _explained(path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.replace(folder / path.name)
        sync_directory(folder)
        sync_directory(path.parent)


def _age(path: Path) -> int:
    return path.stat().st_mtime_ns


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostError(
            f"cannot write {path}: {error.strerror}", "free some space, or mend the permissions"
        ) from error

"""The store on SQLite: one file, one writer, every write synced before it is acknowledged."""

from __future__ import annotations

import json
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from journeyman.errors import HostError
from journeyman_plane.adapters.change_log import ChangeLog
from journeyman_plane.adapters.waiters import Waiters
from journeyman_plane.core import object_rules
from journeyman_plane.core.merge_patch import merge_patch
from journeyman_plane.ports import Change, Clock, JsonObject, Key, Preconditions

_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
    grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (grp, plural, namespace, name)
);
CREATE TABLE IF NOT EXISTS changes (
    version INTEGER PRIMARY KEY, type TEXT NOT NULL,
    grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    body BLOB NOT NULL, old_labels BLOB NOT NULL
);
PRAGMA user_version = 1;
"""
_VERSION = 1
# SQLITE_IOERR_SHMOPEN, SHMSIZE, SHMLOCK and SHMMAP.
_NO_SHARED_MEMORY = "SQLITE_IOERR_SHM"
_AT = "grp = ? AND plural = ? AND namespace = ? AND name = ?"


class SqliteStore:
    """Objects and the log of their changes in one SQLite file.

    The caller makes sure that one process at a time has the file; threads are welcome.

    Args:
        path: the database; it is made where there is none.  `:memory:` is one that ends with the process.
        clock: for creation and deletion times.
        split: (group, plural) of the kinds with a status subresource.
        history: how many changes a watch may lag behind before it has to list again.

    Raises:
        HostError: the file is no database, or is one of a newer program.
    """

    def __init__(
        self, path: Path, clock: Clock, split: AbstractSet[tuple[str, str]], *, history: int = 10_000
    ) -> None:
        self._clock = clock
        self._split = split
        self._lock = threading.RLock()
        self._db = _opened(path)
        self._log = ChangeLog(self._db, history)
        self._waiters = Waiters()

    def close(self) -> None:
        """Ends all waits and closes the file; nothing else may be called then."""
        self._waiters.wake_all()
        with self._lock:
            self._db.close()

    def get(self, key: Key) -> JsonObject:
        with self._lock:
            return self._read(key)

    def select(self, group: str, plural: str, namespace: str = "") -> tuple[list[JsonObject], int]:
        where, values = "grp = ? AND plural = ?", [group, plural]
        if namespace:
            where, values = f"{where} AND namespace = ?", [*values, namespace]
        query = f"SELECT body FROM objects WHERE {where} ORDER BY namespace, name"  # noqa: S608
        with self._lock, closing(self._db.execute(query, values)) as rows:
            return [json.loads(body) for (body,) in rows], self._log.version

    def create(self, key: Key, body: Mapping[str, Any], *, dry_run: bool = False) -> JsonObject:
        with self._writing() as write:
            if self._db.execute(f"SELECT 1 FROM objects WHERE {_AT}", _place(key)).fetchone():  # noqa: S608
                raise object_rules.already_exists(key)
            stored = object_rules.created(
                key,
                body,
                uid=str(uuid.uuid4()),
                now=self._clock.now(),
                split=key.resource in self._split,
            )
            return stored if dry_run else write("ADDED", key, stored, {})

    def update(
        self,
        key: Key,
        change: Callable[[JsonObject], Mapping[str, Any]],
        *,
        status: bool = False,
        preconditions: Preconditions | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        with self._writing() as write:
            current = self._read(key)
            object_rules.check(key, current, preconditions)
            stored = object_rules.updated(
                key, current, change(current), status=status, split=key.resource in self._split
            )
            if dry_run or stored == current:
                return stored
            metadata = stored["metadata"]
            if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
                write("DELETED", key, stored, _labels(current))
                # What went was never stored under a version of its own; Kubernetes answers the last one, too.
                return stored
            return write("MODIFIED", key, stored, _labels(current))

    def patch(
        self,
        key: Key,
        merge_patch: Mapping[str, Any],
        *,
        status: bool = False,
        preconditions: Preconditions | None = None,
    ) -> JsonObject:
        return self.update(
            key, lambda current: _merged(current, merge_patch), status=status, preconditions=preconditions
        )

    def delete(
        self, key: Key, preconditions: Preconditions | None = None, *, dry_run: bool = False
    ) -> JsonObject:
        with self._writing() as write:
            current = self._read(key)
            object_rules.check_deletion(key, current, preconditions)
            metadata = current["metadata"]
            if dry_run or "deletionTimestamp" in metadata:
                return current
            if not metadata.get("finalizers"):
                return write("DELETED", key, current, _labels(current))
            leaving: JsonObject = {
                "deletionTimestamp": object_rules.timestamp(self._clock.now()),
                "deletionGracePeriodSeconds": 0,
            }
            if "generation" in metadata:
                leaving["generation"] = metadata["generation"] + 1
            return write("MODIFIED", key, current | {"metadata": metadata | leaving}, _labels(current))

    def changes(self, after: int, resource: tuple[str, str] | None = None) -> list[Change]:
        with self._lock:
            return self._log.after(after, resource)

    def version(self) -> int:
        with self._lock:
            return self._log.version

    async def wait_for_change(
        self, after: int, timeout_seconds: float, resource: tuple[str, str] | None = None
    ) -> None:
        # The waiter is registered before the version is read: a write between the two is not missed.
        with self._waiters.waiter(resource) as waiter:
            with self._lock:
                changed = self._log.last_change_of(resource) > after
            if not changed:
                await waiter.wait(timeout_seconds)

    def wake_all(self) -> None:
        """Ends all waits, so that watches notice that the plane stops."""
        self._waiters.wake_all()

    def _read(self, key: Key) -> JsonObject:
        row = self._db.execute(f"SELECT body FROM objects WHERE {_AT}", _place(key)).fetchone()  # noqa: S608
        if row is None:
            raise object_rules.not_found(key)
        found: JsonObject = json.loads(row[0])
        return found

    @contextmanager
    def _writing(self) -> Iterator[Callable[[str, Key, JsonObject, Mapping[str, str]], JsonObject]]:
        """One transaction; what it wrote is told to those who wait once it is durable."""
        done: list[tuple[Change, int]] = []

        def write(kind: str, key: Key, stored: JsonObject, old_labels: Mapping[str, str]) -> JsonObject:
            version = self._log.version + 1
            stored = stored | {"metadata": stored["metadata"] | {"resourceVersion": str(version)}}
            body = json.dumps(stored, separators=(",", ":")).encode()
            if kind == "DELETED":
                self._db.execute(f"DELETE FROM objects WHERE {_AT}", _place(key))  # noqa: S608
            else:
                self._db.execute("REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", (*_place(key), body))
            change = Change(kind, version, stored, key, old_labels)
            self._log.write(change, body)
            done.append((change, len(body)))
            return stored

        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield write
                self._db.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back by itself after some errors, such as a full disk.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            for change, size_bytes in done:
                self._log.committed(change, size_bytes)
        for change, _ in done:
            self._waiters.wake(change.key.resource)


def _opened(path: Path) -> sqlite3.Connection:
    try:
        try:
            return _connected(path, "WAL")
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith(_NO_SHARED_MEMORY):
                raise
            # Some file systems, those of phones among them, cannot map the index of a write-ahead log.
            _leave_wal(path)
            return _connected(path, "DELETE")
    except sqlite3.Error as error:
        raise HostError(
            f"{path} cannot be used as a database: {error}",
            "Restore it from a copy, or move it away: the plane then starts empty.",
        ) from error


def _connected(path: Path, journal: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db, path, journal)
    except BaseException:
        db.close()
        raise
    return db


def _leave_wal(path: Path) -> None:
    """Gives up the write-ahead log, with what is in it; whoever is alone needs no index that others map."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = DELETE")


def _prepare(db: sqlite3.Connection, path: Path, journal: str) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    # SQLite gives its other files the mode of this one; Secrets are in all of them.  In memory there is none.
    with suppress(FileNotFoundError):
        path.chmod(0o600)
    if version > _VERSION:
        raise HostError(
            f"{path} was written by a newer program (format {version}, this one reads {_VERSION})",
            "Start the newer program, or another folder with --data-dir.",
        )
    db.execute(f"PRAGMA journal_mode = {journal}")
    # FULL syncs the journal at each commit: what was acknowledged survives a power cut.
    db.execute("PRAGMA synchronous = FULL")
    db.executescript(_SCHEMA)


def _merged(current: JsonObject, patch: Mapping[str, Any]) -> JsonObject:
    result: JsonObject = merge_patch(current, patch)
    return result


def _place(key: Key) -> tuple[str, str, str, str]:
    return key.group, key.plural, key.namespace, key.name


def _labels(stored: JsonObject) -> Mapping[str, str]:
    labels: Mapping[str, str] = stored["metadata"].get("labels") or {}
    return labels

"""The log of changes that watches read, in SQLite and, its newest part, in memory."""

from __future__ import annotations

import json
import sqlite3
from collections import deque

from journeyman.errors import ExpiredError
from journeyman_plane.ports import Change, Key

# So many of the newest changes are also kept in memory: a thousand watchers read them at no cost.
_IN_MEMORY = 512
_LARGEST_TAIL_BYTES = 8 * 1024 * 1024
# Compaction is amortised: it looks at the log once in so many writes.
_COMPACT_EVERY = 256
# Transcripts may be a megabyte each, so the log is bounded by size as well as by count.
_LARGEST_LOG_BYTES = 64 * 1024 * 1024


class ChangeLog:
    """The changes of the last while, each with its resourceVersion.

    The store that owns it holds its lock around every call, and a transaction around `write`.

    Args:
        db: the store's connection, with the `changes` table.
        history: how many changes to keep.
    """

    def __init__(self, db: sqlite3.Connection, history: int) -> None:
        self._db = db
        self._history = history
        self.version, self._floor = self._bounds()
        self._opened_at = self.version
        # Each with the size of its body.
        self._tail: deque[tuple[Change, int]] = deque()
        self._tail_bytes = 0
        self._last: dict[tuple[str, str], int] = {}

    def write(self, change: Change, body: bytes) -> None:
        """Adds a change within the open transaction; `committed` makes it visible."""
        key = change.key
        labels = json.dumps(dict(change.old_labels)).encode()
        self._db.execute(
            "INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                change.resource_version,
                change.type,
                key.group,
                key.plural,
                key.namespace,
                key.name,
                body,
                labels,
            ),
        )
        if change.resource_version % min(_COMPACT_EVERY, self._history) == 0:
            self._compact(change.resource_version)

    def committed(self, change: Change, size_bytes: int) -> None:
        """Makes a change visible that the finished transaction wrote, with a body of that size."""
        if change.resource_version % min(_COMPACT_EVERY, self._history) == 0:
            self._floor = self._bounds()[1]
        self.version = change.resource_version
        self._last[change.key.resource] = change.resource_version
        self._tail.append((change, size_bytes))
        self._tail_bytes += size_bytes
        most = min(_IN_MEMORY, self._history)
        while self._tail and (len(self._tail) > most or self._tail_bytes > _LARGEST_TAIL_BYTES):
            self._tail_bytes -= self._tail.popleft()[1]

    def last_change_of(self, resource: tuple[str, str] | None) -> int:
        """The version of the newest change of a resource, or a bound above it after a start."""
        return self.version if resource is None else self._last.get(resource, self._opened_at)

    def after(self, version: int, resource: tuple[str, str] | None) -> list[Change]:
        """The changes after a version, oldest first.  Raises ExpiredError."""
        if not self._floor <= version <= self.version:
            raise ExpiredError(
                f"too old resource version: {version} ({self._floor})"
                if version < self._floor
                else f"resource version {version} is from another store; this one is at {self.version}",
                status=410,
                reason="Expired",
            )
        if self._tail and self._tail[0][0].resource_version <= version + 1:
            found = []
            for change, _ in reversed(self._tail):
                if change.resource_version <= version:
                    break
                if resource is None or change.key.resource == resource:
                    found.append(change)
            return found[::-1]
        return self._from_disk(version, resource)

    def _from_disk(self, version: int, resource: tuple[str, str] | None) -> list[Change]:
        query = (
            "SELECT type, version, body, grp, plural, namespace, name, old_labels FROM changes "
            "WHERE version > ? AND (? IS NULL OR (grp = ? AND plural = ?)) ORDER BY version"
        )
        group, plural = resource or (None, None)
        return [
            Change(kind, at, json.loads(body), Key(*place), json.loads(labels))
            for kind, at, body, *place, labels in self._db.execute(query, (version, group, group, plural))
        ]

    def _bounds(self) -> tuple[int, int]:
        newest, oldest = self._db.execute("SELECT max(version), min(version) FROM changes").fetchone()
        return newest or 0, (oldest or 1) - 1

    def _compact(self, newest: int) -> None:
        # The newest change always stays: it holds the counter of resourceVersions.
        (too_large,) = self._db.execute(
            "SELECT max(version) FROM (SELECT version, "
            "sum(length(body)) OVER (ORDER BY version DESC) AS size FROM changes) WHERE size > ?",
            (_LARGEST_LOG_BYTES,),
        ).fetchone()
        last = max(newest - self._history, too_large or 0)
        self._db.execute("DELETE FROM changes WHERE version <= ?", (min(last, newest - 1),))

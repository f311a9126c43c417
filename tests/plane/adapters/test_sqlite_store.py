"""The store's contract, on the real SQLite."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.errors import ConflictError, ExpiredError, HostError, NotFoundError
from journeyman_plane.adapters.sqlite_store import SqliteStore
from journeyman_plane.ports import JsonObject, Key, Preconditions
from tests.support.clock import FakeClock

NODE = Key("foreman.llmkube.dev", "fleetnodes", "", "desk")
NOTES = Key("", "configmaps", "default", "notes")
SPLIT = frozenset({NODE.resource})


def opened(path: Path, history: int = 10_000) -> SqliteStore:
    return SqliteStore(path / "plane.db", FakeClock(), SPLIT, history=history)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A new store."""
    made = opened(tmp_path)
    yield made
    made.close()


def version_of(stored: JsonObject) -> int:
    return int(stored["metadata"]["resourceVersion"])


def test_create_gives_an_identity(store: SqliteStore) -> None:
    """A new object gets a uid, a version and the time of the clock, whatever the client claims of these."""
    claimed = {
        "uid": "mine",
        "creationTimestamp": "1970-01-01T00:00:00Z",
        "generation": 7,
        "labels": {"a": "b"},
    }
    made = store.create(NODE, {"metadata": claimed, "spec": {}, "status": {"phase": "Ready"}})
    assert made["metadata"] == {
        "name": "desk", "labels": {"a": "b"}, "generation": 1, "creationTimestamp": "2026-01-01T12:00:00Z",
        "uid": made["metadata"]["uid"], "resourceVersion": "1",
    }  # fmt: skip
    assert made["metadata"]["uid"] != "mine"
    assert "status" not in made
    assert store.get(NODE) == made


def test_a_name_is_taken_once(store: SqliteStore) -> None:
    """A second create of one name is AlreadyExists, and another namespace is another name."""
    store.create(NOTES, {})
    with pytest.raises(ConflictError) as caught:
        store.create(NOTES, {})
    assert caught.value.reason == "AlreadyExists"
    store.create(Key("", "configmaps", "other", "notes"), {})


def test_versions_grow_and_generation_counts_wishes(store: SqliteStore) -> None:
    """Each write has a higher version; only a change of what is wanted raises the generation."""
    made = store.create(NODE, {"spec": {"nodeName": "desk"}})
    labelled = store.patch(NODE, {"metadata": {"labels": {"a": "b"}}})
    beaten = store.patch(NODE, {"status": {"phase": "Ready"}}, status=True)
    wished = store.patch(NODE, {"spec": {"roles": ["worker"]}})
    assert [version_of(each) for each in (made, labelled, beaten, wished)] == [1, 2, 3, 4]
    assert [each["metadata"]["generation"] for each in (made, labelled, beaten, wished)] == [1, 1, 1, 2]


def test_a_patch_that_changes_nothing_is_no_write(store: SqliteStore) -> None:
    """The version stays, nothing is logged, and nobody is woken."""
    store.create(NODE, {"spec": {"nodeName": "desk"}})
    before = store.patch(NODE, {"status": {"phase": "Ready"}}, status=True)
    assert store.patch(NODE, {"status": {"phase": "Ready"}}, status=True) == before
    assert store.patch(NODE, {"metadata": {"uid": before["metadata"]["uid"]}}) == before
    assert store.version() == version_of(before)


def test_status_and_the_rest_are_written_apart(store: SqliteStore) -> None:
    """A write to the object ignores a status, and a write to the status ignores everything else."""
    store.create(NODE, {"spec": {"nodeName": "desk"}})
    both: dict[str, Any] = {
        "spec": {"nodeName": "x"},
        "status": {"phase": "Ready"},
        "metadata": {"labels": {"a": "b"}},
    }
    on_status = store.patch(NODE, both, status=True)
    assert (on_status["spec"], on_status["status"]) == ({"nodeName": "desk"}, {"phase": "Ready"})
    assert "labels" not in on_status["metadata"]
    on_object = store.patch(NODE, {"spec": {"nodeName": "x"}, "status": {"phase": "Draining"}})
    assert (on_object["spec"], on_object["status"]) == ({"nodeName": "x"}, {"phase": "Ready"})


def test_stale_writes_are_conflicts(store: SqliteStore) -> None:
    """A precondition, given or within the body, that does not hold stops the write."""
    made = store.create(NODE, {"spec": {}})
    store.patch(NODE, {"spec": {"nodeName": "newer"}})
    stale = made["metadata"]["resourceVersion"]
    writes: list[Callable[[], object]] = [
        lambda: store.patch(NODE, {"spec": {}}, preconditions=Preconditions(resource_version=stale)),
        lambda: store.patch(NODE, {"metadata": {"resourceVersion": stale}, "spec": {"nodeName": "x"}}),
        lambda: store.patch(NODE, {"metadata": {"resourceVersion": stale}, "status": {}}, status=True),
        lambda: store.patch(NODE, {"metadata": {"uid": "another"}}),
        lambda: store.update(NODE, lambda _: made),
        lambda: store.delete(NODE, Preconditions(resource_version=stale)),
        lambda: store.delete(NODE, Preconditions(uid="another")),
    ]
    for write in writes:
        with pytest.raises(ConflictError) as caught:
            write()
        assert caught.value.reason == "Conflict"
    assert store.get(NODE)["spec"] == {"nodeName": "newer"}


def test_of_two_writers_with_one_view_one_wins(store: SqliteStore) -> None:
    """Threads that compare and set from one version: exactly one succeeds a round."""
    store.create(NOTES, {"data": {}})
    for count in range(20):
        seen = store.get(NOTES)["metadata"]["resourceVersion"]
        won: list[int] = []

        def write(number: int, seen: str = seen, count: int = count, won: list[int] = won) -> None:
            try:
                store.patch(
                    NOTES, {"data": {"round": f"{count}-{number}"}, "metadata": {"resourceVersion": seen}}
                )
                won.append(number)
            except ConflictError:
                pass

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1


def test_what_a_change_raises_ends_it(store: SqliteStore) -> None:
    """An update whose function fails writes nothing, and the store goes on."""
    before = store.create(NOTES, {"data": {}})

    def refuse(_: JsonObject) -> JsonObject:
        raise KeyError("no")

    with pytest.raises(KeyError):
        store.update(NOTES, refuse)
    assert store.get(NOTES) == before
    store.delete(NOTES)
    attempts: list[Callable[[], object]] = [
        lambda: store.get(NOTES),
        lambda: store.delete(NOTES),
        lambda: store.patch(NOTES, {}),
    ]
    for missing in attempts:
        with pytest.raises(NotFoundError):
            missing()


def test_select_is_sorted_and_scoped(store: SqliteStore) -> None:
    """A selection is by namespace and name, of one namespace or all, with the version of the view."""
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        store.create(Key("", "configmaps", namespace, name), {})
    store.create(NODE, {})
    found, version = store.select("", "configmaps")
    assert [each["metadata"]["name"] for each in found] == ["y", "z", "x"]
    assert version == 4
    assert [each["metadata"]["name"] for each in store.select("", "configmaps", "b")[0]] == ["x"]


def test_finalizers_delay_the_end(store: SqliteStore) -> None:
    """An object with finalizers is marked, keeps its mark, and is DELETED when the last one goes."""
    store.create(NOTES, {"metadata": {"finalizers": ["a", "b"]}})
    marked = store.delete(NOTES)
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
    assert store.delete(NOTES) == marked
    store.patch(NOTES, {"metadata": {"finalizers": ["b"]}})
    store.patch(NOTES, {"metadata": {"finalizers": None}})
    with pytest.raises(NotFoundError):
        store.get(NOTES)
    assert [change.type for change in store.changes(0)] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]


@pytest.mark.parametrize("restarted", [False, True])
def test_changes_come_in_order(tmp_path: Path, restarted: bool) -> None:  # noqa: FBT001
    """The log tells every write after a version, of one resource or of all, before and after a restart."""
    store = opened(tmp_path)
    store.create(NODE, {})
    store.create(NOTES, {"metadata": {"labels": {"a": "b"}}})
    store.patch(NOTES, {"metadata": {"labels": {"a": "c"}}})
    store.delete(NODE)
    if restarted:
        store.close()
        store = opened(tmp_path)
    assert [(each.type, each.key) for each in store.changes(1)] == [
        ("ADDED", NOTES), ("MODIFIED", NOTES), ("DELETED", NODE),
    ]  # fmt: skip
    (modified,) = store.changes(2, NOTES.resource)
    assert (modified.resource_version, modified.old_labels) == (3, {"a": "b"})
    assert modified.object["metadata"]["labels"] == {"a": "c"}
    assert store.changes(4) == []
    assert store.create(Key("", "configmaps", "default", "next"), {})["metadata"]["resourceVersion"] == "5"
    store.close()


def test_the_log_is_compacted_and_says_so(tmp_path: Path) -> None:
    """Versions before the log, and those of another store, are Expired; the last `history` ones are there."""
    store = opened(tmp_path, history=10)
    store.create(NOTES, {})
    for count in range(99):
        store.patch(NOTES, {"data": {"n": str(count)}})
    for version in (0, 50, 101):
        with pytest.raises(ExpiredError):
            store.changes(version)
    assert [each.resource_version for each in store.changes(90)] == list(range(91, 101))
    with sqlite3.connect(tmp_path / "plane.db") as other:
        (rows,) = other.execute("SELECT count(*) FROM changes").fetchone()
    other.close()
    assert rows == 10
    store.close()
    reopened = opened(tmp_path, history=10)
    assert reopened.version() == 100
    with pytest.raises(ExpiredError):
        reopened.changes(50)
    reopened.close()


def test_large_changes_are_read_from_disk(store: SqliteStore) -> None:
    """Only so many bytes of changes stay in memory; the log is whole all the same, in the same order."""
    store.create(NOTES, {})
    for count in range(12):
        store.patch(NOTES, {"data": {"n": f"{count}" + "x" * 1_000_000}})
    assert len(store._log._tail) == 8
    for after in (0, 3, 12):
        assert [each.resource_version for each in store.changes(after)] == list(range(after + 1, 14))


def test_waits_end_with_a_write_from_any_thread(store: SqliteStore) -> None:
    """A wait ends at once if there is something, when another thread writes, and at its timeout."""

    async def wait() -> None:
        await store.wait_for_change(0, 30)
        at = store.version()
        writer = threading.Timer(0.01, store.create, args=(NOTES, {}))
        writer.start()
        await store.wait_for_change(at, 30)
        writer.join()
        assert store.version() == at + 1
        await store.wait_for_change(store.version(), 0.01)

    store.create(NODE, {})
    asyncio.run(asyncio.wait_for(wait(), 10))


def test_waits_are_for_one_resource(store: SqliteStore) -> None:
    """A wait for one resource sleeps through the writes of others."""

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, store.create, NODE, {})
        loop.call_later(0.03, store.create, NOTES, {})
        await store.wait_for_change(store.version(), 30, NOTES.resource)
        assert store.get(NOTES)

    asyncio.run(asyncio.wait_for(wait(), 10))


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    """A database of a later program is left alone, with advice."""
    opened(tmp_path).close()
    with sqlite3.connect(tmp_path / "plane.db") as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(HostError, match="written by a newer program"):
        opened(tmp_path)


def test_every_commit_is_synced(store: SqliteStore) -> None:
    """The database runs in WAL mode with FULL synchronisation: an acknowledged write survives a power cut."""
    assert store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._db.execute("PRAGMA synchronous").fetchone() == (2,)


# In a process of its own, in which files may not grow to what the index of a write-ahead log takes.
WITHOUT_SHARED_MEMORY = """
import resource, sys
from pathlib import Path
from tests.plane.adapters.test_sqlite_store import NODE, opened
unlimited = resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_FSIZE, (32 * 1024 - 1, unlimited))
store = opened(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
store.patch(NODE, {"metadata": {"labels": {"seen": "yes"}}})
print(*(store._db.execute(f"PRAGMA {what}").fetchone()[0] for what in ("journal_mode", "synchronous")))
store.close()
"""


@pytest.mark.slow
def test_where_no_index_of_the_log_can_be_mapped_the_old_journal_does(tmp_path: Path) -> None:
    """SQLITE_IOERR_SHMSIZE, 4874, is no reason not to start: it is as durable, and nothing stored is lost."""
    before = opened(tmp_path)
    before.create(NODE, {"spec": {"nodeName": "desk"}})
    before.close()
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SHARED_MEMORY, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["delete", "2"]
    after = opened(tmp_path)
    assert after.get(NODE)["metadata"]["labels"] == {"seen": "yes"}
    assert after._db.execute("PRAGMA journal_mode").fetchone() == ("wal",), "it is used again where it can be"
    after.close()

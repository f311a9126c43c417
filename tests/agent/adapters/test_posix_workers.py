"""What only real processes can show; the port's contract is in tests/contracts/test_workers.py."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.errors import WorkerError
from journeyman_updater.contract import (
    ProcessIdentity,
    WorkerFolder,
    WorkerRecord,
    WorkerSpec,
    session_pids,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

FOREVER = WorkerSpec("test", ("/bin/sh", "-c", "exec sleep 1000"), {"PATH": "/usr/bin:/bin"})


def stop(workers: PosixWorkers, record: WorkerRecord) -> None:
    asyncio.run(asyncio.wait_for(workers.stop(record, grace_seconds=0), 20))


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[PosixWorkers]:
    """Workers of which none is left behind."""
    workers = PosixWorkers(tmp_path / "workers", poll_seconds=0.02)
    yield workers
    for record in workers.known():
        stop(workers, record)


def test_a_missing_program_leaves_nothing(workers: PosixWorkers, tmp_path: Path) -> None:
    """The error names the program, and no folder stays."""
    with pytest.raises(WorkerError, match="'/no/such': No such file"):
        workers.start("a", WorkerSpec("test", ("/no/such",)))
    assert list((tmp_path / "workers").iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a\n"])
def test_ids_and_file_names_cannot_lead_out_of_the_folder(workers: PosixWorkers, name: str) -> None:
    """Only plain names become parts of a path."""
    with pytest.raises(WorkerError, match="no plain name"):
        workers.start(name, FOREVER)
    with pytest.raises(WorkerError, match="no plain name"):
        workers.start("a", FOREVER, {name: b""})
    assert workers.known() == []


def test_folders_and_files_are_private(workers: PosixWorkers, tmp_path: Path) -> None:
    """Keys among a worker's files can be read by their owner alone."""
    record = workers.start("a", FOREVER, {"key": b"secret"})
    folder = WorkerFolder(tmp_path / "workers" / "a")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    for path in (folder.files / "key", folder.spec, folder.record, folder.stdout):
        assert path.stat().st_mode & 0o777 == 0o600
    stop(workers, record)


@pytest.mark.parametrize("content", [None, b"", b"not json", b"[]", b'{"format":1}'])
def test_leftovers_of_a_start_are_cleaned(
    workers: PosixWorkers, tmp_path: Path, content: bytes | None
) -> None:
    """A folder without a readable record is no worker, and its id is free again."""
    folder = WorkerFolder(tmp_path / "workers" / "a")
    folder.files.mkdir(parents=True)
    folder.spec.write_bytes(FOREVER.to_json())
    if content is not None:
        folder.record.write_bytes(content)
    assert workers.known() == []
    assert not folder.path.exists()
    stop(workers, workers.start("a", FOREVER))


def test_a_worker_whose_record_is_corrupt_is_ended(workers: PosixWorkers, tmp_path: Path) -> None:
    """What can neither be adopted nor named does not run on unseen."""
    record = workers.start("a", FOREVER)
    WorkerFolder(tmp_path / "workers" / "a").record.write_bytes(b"\0")
    assert workers.known() == []
    eventually(lambda: not record.worker.is_running(), within_seconds=10)
    eventually(lambda: not record.shim.is_running(), within_seconds=10)


def test_a_record_that_cannot_be_read_now_ends_nothing(workers: PosixWorkers, tmp_path: Path) -> None:
    """A failing disk or a lack of descriptors is told, and no worker is taken for a leftover."""
    record = workers.start("a", FOREVER)
    path = WorkerFolder(tmp_path / "workers" / "a").record
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    with pytest.raises(WorkerError, match="cannot be read"):
        workers.known()
    assert workers.running(record)
    path.rmdir()
    path.write_bytes(content)
    assert workers.known() == [record]


def test_an_exit_file_that_is_corrupt_or_anothers_is_unknown(workers: PosixWorkers, tmp_path: Path) -> None:
    """Only the exit report with the record's nonce counts."""
    record = workers.start("a", FOREVER)
    stop(workers, record)
    ended = workers.exit_of(record)
    assert ended is not None
    folder = WorkerFolder(tmp_path / "workers" / "a")
    for content in (dataclasses.replace(ended, nonce="other").to_json(), b"\0\0", b""):
        folder.exit.write_bytes(content)
        assert workers.exit_of(record) is None


def test_a_record_of_another_boot_has_ended_and_harms_nobody(workers: PosixWorkers, tmp_path: Path) -> None:
    """After a reboot pids mean other processes: such a worker has ended, and its stop kills nothing."""
    bystander = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    old = ProcessIdentity("an-earlier-boot", bystander.pid, "1")
    folder = WorkerFolder(tmp_path / "workers" / "a")
    folder.files.mkdir(parents=True)
    record = WorkerRecord("a", "n", "d", old, old, "2026-01-01T00:00:00Z", "test", {})
    folder.record.write_bytes(record.to_json())
    assert workers.known() == [record]
    assert not workers.running(record)
    stop(workers, record)
    assert bystander.poll() is None
    workers.remove(record)
    with bystander:
        bystander.kill()


def test_a_killed_shim_leaves_no_orphans(workers: PosixWorkers) -> None:
    """When somebody kills the shim, `stop` ends the worker and the children in its session."""
    script = "sleep 1000 & echo; wait"
    record = workers.start("a", WorkerSpec("test", ("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}))
    eventually(lambda: len(_session(record.worker.pid)) == 2, within_seconds=10)
    os.kill(record.shim.pid, signal.SIGKILL)
    stop(workers, record)
    assert workers.exit_of(record) is None
    eventually(lambda: _session(record.worker.pid) == [], within_seconds=10)


def test_children_of_a_dead_worker_are_found_without_a_shim(workers: PosixWorkers) -> None:
    """Shim and worker killed at once: what is left of the worker's session still ends."""
    script = "sleep 1000 & wait"
    record = workers.start("a", WorkerSpec("test", ("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"}))
    eventually(lambda: len(_session(record.worker.pid)) == 2, within_seconds=10)
    os.kill(record.shim.pid, signal.SIGSTOP)
    os.kill(record.worker.pid, signal.SIGKILL)
    os.kill(record.shim.pid, signal.SIGKILL)
    assert asyncio.run(asyncio.wait_for(workers.wait(record), 20)) is None
    eventually(lambda: _session(record.worker.pid) == [], within_seconds=10)


def _session(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX":
                members.append(int(entry.name))
    return members


STARTER = """
import os, signal, sys
from pathlib import Path
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman_updater.contract import WorkerSpec
script = "echo run >> ../../runs; exec sleep 1000"
spec = WorkerSpec("test", ("/bin/sh", "-c", script), {"PATH": "/usr/bin:/bin"})
record = PosixWorkers(Path(sys.argv[1])).start("a", spec)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_outlives_a_killed_starter_and_is_adopted(workers: PosixWorkers, tmp_path: Path) -> None:
    """After `kill -9` of the agent the next one finds the same process, started once."""
    command = [sys.executable, "-c", STARTER, str(tmp_path / "workers")]
    died = subprocess.run(command, check=False, timeout=20, env={**os.environ, "A_SECRET": "x"})
    assert died.returncode == -signal.SIGKILL
    (record,) = workers.known()
    assert workers.running(record)
    assert record.worker.is_running()
    runs = tmp_path / "workers" / "runs"
    eventually(runs.exists, within_seconds=10)
    assert runs.read_text() == "run\n"
    with pytest.raises(WorkerError, match="already exists"):
        workers.start("a", FOREVER)
    stop(workers, record)
    assert runs.read_text() == "run\n"
    assert not record.worker.is_running()


CUT_OFF = """
import sys
from pathlib import Path
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman_updater.contract import WorkerSpec
print("now", flush=True)
env = {"PATH": "/usr/bin:/bin", "MARK": sys.argv[2]}
PosixWorkers(Path(sys.argv[1])).start("a", WorkerSpec("test", ("/bin/sh", "-c", "exec sleep 1234"), env))
sys.stdin.read()
"""


@pytest.mark.parametrize("seed", range(8))
def test_a_start_cut_off_at_any_moment_is_whole_or_nothing(
    workers: PosixWorkers, tmp_path: Path, seed: int
) -> None:
    """Wherever the starter is killed: the next agent finds it or nothing runs, and the id is free."""
    command = [sys.executable, "-c", CUT_OFF, str(tmp_path / "workers"), str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"now\n"
        with contextlib.suppress(subprocess.TimeoutExpired):
            starter.wait(random.Random(seed).uniform(0, 0.15))
        # Every other time whoever still waits for the shim dies, too, as at Ctrl-C in a terminal.
        (os.killpg if seed % 2 else os.kill)(starter.pid, signal.SIGKILL)
    found = workers.known()
    assert all(workers.running(record) for record in found)
    for record in found:
        stop(workers, record)
        workers.remove(record)
    eventually(lambda: not _marked(str(tmp_path)), within_seconds=10)
    stop(workers, workers.start("a", FOREVER))


def _marked(mark: str) -> list[int]:
    """The processes whose environment or arguments hold the mark, but for ourselves."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                seen = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if mark.encode() in seen:
                    found.append(int(entry.name))
    return found


def test_the_usage_of_a_session_is_that_of_all_its_processes(workers: PosixWorkers) -> None:
    """A child's memory counts for the worker that started it."""
    child = "import threading; kept = b'x' * (64 << 20); threading.Event().wait()"
    spec = WorkerSpec("test", ("/bin/sh", "-c", f'{sys.executable} -S -c "{child}"; true'))
    record = workers.start("a", spec)
    eventually(lambda: workers.usage(record).ram_bytes > 64 << 20, within_seconds=20)
    stop(workers, record)


def test_a_whole_session_stands_still(workers: PosixWorkers) -> None:
    """SIGSTOP reaches a process in a group of its own, too; so does SIGCONT."""
    # Job control makes the group, and is off afterwards: a shell that has it goes on when its job is stopped.
    script = "set -m; sleep 1000 & set +m; sleep 1000; true"
    record = workers.start("a", WorkerSpec("test", ("/bin/bash", "-c", script), {"PATH": os.defpath}))

    def states() -> list[str]:
        return [
            Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
            for pid in session_pids(record.worker)
        ]

    eventually(lambda: len(states()) == 3, within_seconds=10)
    workers.signal(record, signal.SIGSTOP)
    eventually(lambda: states() == ["T"] * 3, within_seconds=10)
    workers.signal(record, signal.SIGCONT)
    eventually(lambda: "T" not in states(), within_seconds=10)
    assert len(states()) == 3
    stop(workers, record)


@pytest.mark.slow
def test_the_last_words_are_the_end_of_stderr(tmp_path: Path) -> None:
    """A few kilobytes of it, also after its end, where the log has all; one that said nothing has none."""
    workers = PosixWorkers(tmp_path / "workers", poll_seconds=0.02)
    script = "i=0; while [ $i -lt 2000 ]; do echo line-$i >&2; i=$((i+1)); done"
    loud = workers.start("loud", WorkerSpec("test", ("/bin/sh", "-c", script), {"PATH": os.defpath}))
    still = workers.start("still", WorkerSpec("test", ("/bin/sh", "-c", "true"), {"PATH": os.defpath}))
    for record in (loud, still):
        asyncio.run(workers.wait(record))
    words = workers.last_words(loud)
    assert words.endswith("line-1999\n")
    assert "line-0\n" not in words
    assert len(words) <= 8192
    assert workers.last_words(still) == ""
    assert workers.log(loud).startswith("line-0\n")
    assert workers.log(loud).endswith(words)
    assert workers.log(still) == ""

"""An uninstall ends all workers, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import WorkerFolder, WorkerRecord, WorkerSpec, identity_of, signal_session
from tests.support.kept_host import UPDATER_PACKAGES
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
NOBODY = 65534


def start(workers: Path, name: str, *argv: str) -> WorkerRecord:
    folder = WorkerFolder(workers / name)
    folder.files.mkdir(parents=True)
    folder.spec.write_bytes(WorkerSpec("test", argv).to_json())
    shim = [sys.executable, "-S", "-P", "-m", "journeyman_updater.shim", str(folder.path)]
    subprocess.run(shim, env={"PYTHONPATH": str(UPDATER_PACKAGES)}, check=True)
    return WorkerRecord.from_json(folder.record.read_bytes())


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us."""
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user can enter, as the state root of a system install."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_workers_are_asked_first_and_killed_if_they_are_deaf(tmp_path: Path) -> None:
    """One that heeds SIGTERM ends by it, one that does not is killed, and both shims are gone."""
    script = "trap '' TERM; echo deaf; while :; do sleep 1; done"
    deaf = start(tmp_path, "deaf", "/bin/sh", "-c", script)
    eventually(lambda: b"deaf" in WorkerFolder(tmp_path / "deaf").stdout.read_bytes())
    polite = start(tmp_path, "polite", "/bin/sleep", "600")
    assert end_workers(tmp_path, SystemClock(), grace_seconds=0.5) == ["deaf", "polite"]
    for record in (deaf, polite):
        eventually(lambda record=record: not (record.worker.is_running() or record.shim.is_running()))  # type: ignore[misc]
    assert b'"signal":15' in WorkerFolder(tmp_path / "polite").exit.read_bytes()
    assert b'"signal":9' in WorkerFolder(tmp_path / "deaf").exit.read_bytes()
    assert end_workers(tmp_path, SystemClock(), grace_seconds=0.5) == []


def test_work_that_stands_still_is_let_go_on_to_hear_it(tmp_path: Path) -> None:
    """What a killed agent has left suspended ends by SIGTERM as well, long before the grace is over."""
    still = start(tmp_path, "still", "/bin/sleep", "600")
    signal_session(still.worker, signal.SIGSTOP)
    assert end_workers(tmp_path, SystemClock(), grace_seconds=60) == ["still"]
    eventually(lambda: not still.shim.is_running())
    assert b'"signal":15' in WorkerFolder(tmp_path / "still").exit.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot run here: only root can be fooled")
def test_a_forged_record_ends_nothing_of_others(
    open_folder: Path, bystander: subprocess.Popen[bytes]
) -> None:
    """What the agent's user writes cannot make root signal a process that is not that user's."""
    victim = identity_of(bystander.pid)
    assert victim is not None
    workers = open_folder / "workers"
    folder = WorkerFolder(workers / "forged")
    folder.path.mkdir(parents=True)
    record = WorkerRecord("forged", "n", "d", victim, victim, "2026-01-01T00:00:00Z", "test", {})
    folder.record.write_bytes(record.to_json())
    for path in (workers, folder.path, folder.record):
        os.chown(path, NOBODY, NOBODY)
    end_workers(workers, SystemClock(), grace_seconds=0.2)
    assert victim.is_running()
    bystander.send_signal(signal.SIGTERM)
    assert bystander.wait(timeout=10) == -signal.SIGTERM

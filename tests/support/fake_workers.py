"""Workers in memory: a test scripts how they end and reads what was started."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from journeyman.errors import WorkerError
from journeyman.ports import Usage
from journeyman_updater.contract import ProcessIdentity, WorkerExit, WorkerRecord, WorkerSpec


@dataclass
class _Worker:
    record: WorkerRecord
    spec: WorkerSpec
    files: dict[str, bytes]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    exit: WorkerExit | None = None


class FakeWorkers:
    """Implements `Workers`.

    Attributes:
        started: the id of each worker that was ever started, in order; removed ones stay listed.
        stopped: the id of each worker that `stop` was called for, in order.
        refusal: while set, `start` raises a WorkerError with this text.
        stubborn: ids of workers that ignore SIGTERM.
        signals: each signal that was sent, with the worker's id, in order.
        uses: what a worker uses, by its id; nothing where there is none.
        words: the end of its stderr, by its id.
    """

    def __init__(self) -> None:
        self.started: list[str] = []
        self.stopped: list[str] = []
        self.refusal = ""
        self.stubborn: set[str] = set()
        self.signals: list[tuple[str, int]] = []
        self.uses: dict[str, Usage] = {}
        self.words: dict[str, str] = {}
        self._workers: dict[str, _Worker] = {}

    # What tests do to workers and ask about them.

    def spec_of(self, worker_id: str) -> WorkerSpec:
        return self._workers[worker_id].spec

    def files_of(self, worker_id: str) -> dict[str, bytes]:
        """The worker's files; a test writes into it what the worker would have written."""
        return self._workers[worker_id].files

    def finish(self, worker_id: str, *, code: int | None = 0, signal: int | None = None) -> None:
        """The worker ends by itself."""
        worker = self._workers[worker_id]
        worker.exit = WorkerExit(code, signal, 1.0, worker.record.nonce)
        worker.ended.set()

    def kill_shim(self, worker_id: str) -> None:
        """The shim is killed, and with it the worker: nobody knows how it would have ended."""
        self._workers[worker_id].ended.set()

    # The port.

    def start(
        self, worker_id: str, spec: WorkerSpec, files: Mapping[str, bytes] | None = None
    ) -> WorkerRecord:
        if self.refusal:
            raise WorkerError(f"worker {worker_id}: {self.refusal}")
        if worker_id in self._workers:
            raise WorkerError(f"worker {worker_id} already exists", "Remove it first.")
        self.started.append(worker_id)
        number = len(self.started)
        record = WorkerRecord(
            worker_id=worker_id,
            nonce=f"nonce-{number}",
            spec_digest=spec.digest(),
            shim=ProcessIdentity("fake-boot", 2 * number, "1"),
            worker=ProcessIdentity("fake-boot", 2 * number + 1, "1"),
            started_at=f"2026-01-01T00:00:00.{number:06}Z",
            kind=spec.kind,
            labels=dict(spec.labels),
        )
        self._workers[worker_id] = _Worker(record, spec, dict(files or {}))
        return record

    def known(self) -> list[WorkerRecord]:
        return sorted((worker.record for worker in self._workers.values()), key=lambda r: r.started_at)

    def running(self, record: WorkerRecord) -> bool:
        worker = self._worker_of(record)
        return worker is not None and not worker.ended.is_set()

    def exit_of(self, record: WorkerRecord) -> WorkerExit | None:
        worker = self._worker_of(record)
        return worker.exit if worker else None

    async def wait(self, record: WorkerRecord) -> WorkerExit | None:
        worker = self._worker_of(record)
        if worker is None:
            return None
        await worker.ended.wait()
        return worker.exit

    async def stop(self, record: WorkerRecord, *, grace_seconds: float) -> WorkerExit | None:
        self.stopped.append(record.worker_id)
        if self.running(record):
            stubborn = record.worker_id in self.stubborn
            self.finish(record.worker_id, code=None, signal=9 if stubborn else 15)
        return self.exit_of(record)

    def read_file(self, record: WorkerRecord, name: str) -> bytes | None:
        worker = self._worker_of(record)
        return worker.files.get(name) if worker else None

    def path_of(self, record: WorkerRecord, name: str) -> Path:
        return Path("/workers", record.worker_id, "files", name)

    def write_file(self, record: WorkerRecord, name: str, content: bytes) -> None:
        worker = self._worker_of(record)
        if worker is None:
            raise WorkerError(f"{name} of worker {record.worker_id} cannot be written: it is gone")
        worker.files[name] = content

    def last_words(self, record: WorkerRecord) -> str:
        return self.words.get(record.worker_id, "")

    def log(self, record: WorkerRecord) -> str:
        return self.last_words(record)

    def signal(self, record: WorkerRecord, number: int) -> None:
        if not self.running(record):
            return
        self.signals.append((record.worker_id, number))
        deaf = record.worker_id in self.stubborn and number == signal.SIGTERM
        if number not in {signal.SIGSTOP, signal.SIGCONT} and not deaf:
            self.finish(record.worker_id, code=None, signal=number)

    def usage(self, record: WorkerRecord) -> Usage:
        return self.uses.get(record.worker_id, Usage()) if self.running(record) else Usage()

    def remove(self, record: WorkerRecord) -> None:
        if self.running(record):
            raise WorkerError(f"worker {record.worker_id} still runs", "Stop it first.")
        if self._worker_of(record) is not None:
            del self._workers[record.worker_id]

    def _worker_of(self, record: WorkerRecord) -> _Worker | None:
        worker = self._workers.get(record.worker_id)
        return worker if worker and worker.record.nonce == record.nonce else None

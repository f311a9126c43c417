"""The contract of `Workers`, for the real processes and for the fake alike."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.errors import WorkerError
from journeyman.ports import Usage, Workers
from journeyman_updater.contract import WorkerRecord, WorkerSpec
from tests.support.fake_workers import FakeWorkers

DEADLINE_SECONDS = 20.0


class Bench(Protocol):
    """The port under test, and the hand of fate."""

    workers: Workers

    def spec(self, worker_id: str, *, stubborn: bool = False) -> WorkerSpec:
        """A spec whose worker runs until `finish`; a stubborn one ignores SIGTERM."""
        ...

    def settle(self, worker_id: str) -> None:
        """Returns once the worker is ready for signals."""
        ...

    def finish(self, worker_id: str, code: int) -> None: ...

    def kill_shim(self, record: WorkerRecord) -> None: ...


class FakeBench:
    def __init__(self) -> None:
        self.fake = FakeWorkers()
        self.workers: Workers = self.fake

    def spec(self, worker_id: str, *, stubborn: bool = False) -> WorkerSpec:
        if stubborn:
            self.fake.stubborn.add(worker_id)
        return WorkerSpec("test", ("program",), {"A": "1"}, labels={"claim": "c1"})

    def settle(self, worker_id: str) -> None:
        pass

    def finish(self, worker_id: str, code: int) -> None:
        self.fake.finish(worker_id, code=code)

    def kill_shim(self, record: WorkerRecord) -> None:
        self.fake.kill_shim(record.worker_id)


class PosixBench:
    """Each worker reads its exit code from a fifo of its own."""

    def __init__(self, folder: Path) -> None:
        self.workers: Workers = PosixWorkers(folder / "state root" / "workers", poll_seconds=0.02)
        self._folder = folder
        self._pipes: dict[str, int] = {}

    def spec(self, worker_id: str, *, stubborn: bool = False) -> WorkerSpec:
        fifo = self._folder / f"{worker_id}.fifo"
        if not fifo.exists():
            os.mkfifo(fifo)
        trap = "trap '' TERM; " if stubborn else ""
        script = f'{trap}read code < "$FIFO"; exit $code'
        return WorkerSpec("test", ("/bin/sh", "-c", script), {"FIFO": str(fifo)}, labels={"claim": "c1"})

    def settle(self, worker_id: str) -> None:
        # Opening the far end of a fifo returns once the worker has opened its own.
        self._pipes[worker_id] = os.open(self._folder / f"{worker_id}.fifo", os.O_WRONLY)

    def finish(self, worker_id: str, code: int) -> None:
        self.settle(worker_id)
        os.write(self._pipes[worker_id], f"{code}\n".encode())

    def kill_shim(self, record: WorkerRecord) -> None:
        os.kill(record.shim.pid, signal.SIGKILL)

    def close(self) -> None:
        for descriptor in self._pipes.values():
            os.close(descriptor)

        async def stop_all() -> None:
            for record in self.workers.known():
                await self.workers.stop(record, grace_seconds=0)

        asyncio.run(stop_all())


@pytest.fixture(params=["fake", pytest.param("posix", marks=pytest.mark.slow)])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "fake":
        yield FakeBench()
        return
    posix = PosixBench(tmp_path)
    yield posix
    posix.close()


T = TypeVar("T")


def within_deadline(work: Coroutine[object, object, T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, DEADLINE_SECONDS)

    return asyncio.run(bounded())


def test_a_started_worker_runs_and_is_known(bench: Bench) -> None:
    """What was started runs, is known with its digest and labels, and has not ended."""
    spec = bench.spec("a")
    record = bench.workers.start("a", spec)
    assert bench.workers.known() == [record]
    assert bench.workers.running(record)
    assert bench.workers.exit_of(record) is None
    assert (record.worker_id, record.kind, record.labels) == ("a", "test", {"claim": "c1"})
    assert record.spec_digest == spec.digest()


def test_known_workers_come_oldest_first(bench: Bench) -> None:
    """Workers are listed in the order of their starts, whatever their names."""
    for name in ("c", "a", "b"):
        bench.workers.start(name, bench.spec(name))
    assert [record.worker_id for record in bench.workers.known()] == ["c", "a", "b"]


def test_wait_tells_the_exit_code(bench: Bench) -> None:
    """`wait` returns when the worker ends, with its code, and so does `exit_of` from then on."""
    record = bench.workers.start("a", bench.spec("a"))

    async def finish_while_waiting() -> None:
        waiting = asyncio.ensure_future(bench.workers.wait(record))
        await asyncio.to_thread(bench.finish, "a", 3)
        ended = await waiting
        assert ended is not None
        assert (ended.code, ended.signal, ended.nonce) == (3, None, record.nonce)

    within_deadline(finish_while_waiting())
    assert not bench.workers.running(record)
    ended = bench.workers.exit_of(record)
    assert ended is not None
    assert ended.code == 3
    assert within_deadline(bench.workers.wait(record)) == ended


def test_stop_ends_a_worker_by_sigterm_and_is_idempotent(bench: Bench) -> None:
    """A willing worker ends by SIGTERM; a second stop changes nothing."""
    record = bench.workers.start("a", bench.spec("a"))
    bench.settle("a")
    ended = within_deadline(bench.workers.stop(record, grace_seconds=10))
    assert ended is not None
    assert (ended.code, ended.signal) == (None, signal.SIGTERM)
    assert within_deadline(bench.workers.stop(record, grace_seconds=10)) == ended


def test_stop_kills_a_stubborn_worker_after_the_grace(bench: Bench) -> None:
    """A worker that ignores SIGTERM is killed, and its exit says so."""
    record = bench.workers.start("a", bench.spec("a", stubborn=True))
    bench.settle("a")
    ended = within_deadline(bench.workers.stop(record, grace_seconds=0.05))
    assert ended is not None
    assert (ended.code, ended.signal) == (None, signal.SIGKILL)


def test_the_exit_is_unknown_when_the_shim_was_killed(bench: Bench) -> None:
    """Without a shim the worker is ended, too, and nobody claims to know how it went."""
    record = bench.workers.start("a", bench.spec("a"))
    bench.kill_shim(record)
    assert within_deadline(bench.workers.wait(record)) is None
    assert bench.workers.exit_of(record) is None
    assert not record.worker.is_running()


def test_an_id_is_taken_until_the_worker_is_removed(bench: Bench) -> None:
    """One id, one worker: starting it again needs a stop and a remove, and gives a new nonce."""
    record = bench.workers.start("a", bench.spec("a"))
    with pytest.raises(WorkerError, match="already exists"):
        bench.workers.start("a", bench.spec("a"))
    with pytest.raises(WorkerError, match="still runs"):
        bench.workers.remove(record)
    within_deadline(bench.workers.stop(record, grace_seconds=0))
    bench.workers.remove(record)
    assert bench.workers.known() == []
    again = bench.workers.start("a", bench.spec("a"))
    assert again.nonce != record.nonce
    assert again.spec_digest == record.spec_digest


def test_files_are_there_before_the_worker_and_can_be_read_back(bench: Bench) -> None:
    """Files given at the start can be read; one that does not exist is None."""
    record = bench.workers.start("a", bench.spec("a"), {"request.json": b"{}"})
    assert bench.workers.read_file(record, "request.json") == b"{}"
    assert bench.workers.read_file(record, "result.json") is None


def test_a_signal_reaches_the_worker_and_one_that_has_ended_hears_nothing(bench: Bench) -> None:
    """A signal ends the worker as it would from a terminal, and is no error afterwards."""
    record = bench.workers.start("a", bench.spec("a"))
    bench.settle("a")
    bench.workers.signal(record, signal.SIGHUP)
    ended = within_deadline(bench.workers.wait(record))
    assert ended is not None
    assert (ended.code, ended.signal) == (None, signal.SIGHUP)
    bench.workers.signal(record, signal.SIGKILL)
    assert bench.workers.exit_of(record) == ended


def test_work_that_stands_still_can_be_stopped(bench: Bench) -> None:
    """A suspended worker is let go on to hear that it shall end, so it ends by SIGTERM and not by force."""
    record = bench.workers.start("a", bench.spec("a"))
    bench.settle("a")
    bench.workers.signal(record, signal.SIGSTOP)
    assert bench.workers.running(record)
    ended = within_deadline(bench.workers.stop(record, grace_seconds=10))
    assert ended is not None
    assert ended.signal == signal.SIGTERM


def test_a_file_that_is_written_can_be_read_back(bench: Bench) -> None:
    """What the agent adds to an ended worker's folder stays with it."""
    record = bench.workers.start("a", bench.spec("a"))
    within_deadline(bench.workers.stop(record, grace_seconds=0))
    bench.workers.write_file(record, "receipt.json", b"{}")
    assert bench.workers.read_file(record, "receipt.json") == b"{}"
    bench.workers.remove(record)
    with pytest.raises(WorkerError, match="cannot be written"):
        bench.workers.write_file(record, "receipt.json", b"{}")


def test_a_worker_that_has_ended_uses_nothing(bench: Bench) -> None:
    """Usage is of this moment."""
    record = bench.workers.start("a", bench.spec("a"))
    within_deadline(bench.workers.stop(record, grace_seconds=0))
    assert bench.workers.usage(record) == Usage()

"""The updater is woken up by a file, and by launchd where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.adapters.updater_waker import CALLS, OUTAGES, UpdaterWaker
from journeyman_updater.contract import UPDATER_JOB, StateRoot
from tests.support.launchd_bench import FakeLaunchdBench
from tests.support.waiting import eventually

JOB = "gui/501/dev.journeyman.agent"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[FakeLaunchdBench]:
    """A job in a user's domain that waits for a kickstart."""
    made = FakeLaunchdBench(tmp_path, "gui/501")
    made.launchd.faults.never_spawns = True
    try:
        made.start()
        yield made
    finally:
        made.close()


def root_in(folder: Path) -> StateRoot:
    root = StateRoot(folder)
    root.run.mkdir(exist_ok=True)
    return root


def waker(bench: FakeLaunchdBench) -> UpdaterWaker:
    return UpdaterWaker(
        root_in(bench.folder),
        {UPDATER_JOB: JOB},
        launchctl=str(bench.tool.folder / "launchctl"),
        timeout_seconds=0.5,
    )


def test_touches_the_file_and_asks_nobody(tmp_path: Path) -> None:
    """Without a job of launchd's the file is all."""
    UpdaterWaker(root_in(tmp_path), {}, launchctl="/nowhere").wake()
    assert StateRoot(tmp_path).wake_up_file.exists()


@pytest.mark.slow
def test_starts_the_job_at_once(bench: FakeLaunchdBench) -> None:
    """A job that waits for its interval runs now."""
    waker(bench).wake()
    bench.agent.wait_for_start(1)
    assert StateRoot(bench.folder).wake_up_file.exists()


@pytest.mark.slow
def test_an_updater_at_work_is_not_disturbed(bench: FakeLaunchdBench) -> None:
    """Waking it again neither kills nor doubles it."""
    woken = waker(bench)
    woken.wake()
    bench.agent.wait_for_start(1)

    def woken_again() -> bool:
        woken.wake()
        return len(bench.acts()) >= 3

    eventually(woken_again)
    assert set(bench.acts()) == {"kickstart"}
    assert len(bench.agent.starts()) == 1


@pytest.mark.slow
def test_a_launchctl_that_hangs_is_given_up(bench: FakeLaunchdBench) -> None:
    """No call waits, one hangs at a time and not for long, and a later one gets through."""
    bench.launchd.faults.hanging.add("kickstart")
    woken = waker(bench)
    woken.wake()
    eventually(lambda: len(bench.acts()) == 1)
    woken.wake()
    assert len(bench.acts()) == 1
    bench.launchd.faults.hanging.clear()

    def started() -> bool:
        woken.wake()
        return bench.agent.starts() != []

    eventually(started)


def test_a_missing_launchctl_is_no_error(tmp_path: Path) -> None:
    """The file is still there for whoever looks at it."""
    UpdaterWaker(root_in(tmp_path), {UPDATER_JOB: JOB}, launchctl="/nowhere").wake()
    assert StateRoot(tmp_path).wake_up_file.exists()


class Heartbeats:
    """Heartbeats that bring requests to an agent, and count the calls for the updater.

    Args:
        root: the state root.
        answers: whether the updater asks the control plane when it is called.
    """

    def __init__(self, root: StateRoot, *, answers: bool) -> None:
        self._root = root
        self._answers = answers
        self.waker = UpdaterWaker(root, {})

    def bring(self, *requests: str | None) -> int:
        """Returns how often the updater was called for these requests, one a heartbeat."""
        return sum(self._bring(request) for request in requests)

    def _bring(self, request: str | None) -> bool:
        file = self._root.wake_up_file
        if file.exists():
            os.utime(file, ns=(1, 1))
        self.waker.heard(request)
        is_called = file.exists() and file.stat().st_mtime_ns != 1
        if is_called and self._answers:
            self._root.check_file.touch()
        return is_called


def test_a_request_that_stands_calls_once(tmp_path: Path) -> None:
    """Whatever became of it, a day of heartbeats with the same request starts no further run."""
    assert Heartbeats(root_in(tmp_path), answers=True).bring(*["one"] * 2880) == 1


def test_a_changed_request_calls_again(tmp_path: Path) -> None:
    """Another request, and one that was taken back and made again, is news."""
    assert Heartbeats(root_in(tmp_path), answers=True).bring("one", "two", "two", None, "two") == 3


def test_a_call_that_nobody_answers_is_repeated_and_not_for_ever(tmp_path: Path) -> None:
    """A touch may be missed; an updater that cannot ask is left to its timer."""
    assert Heartbeats(root_in(tmp_path), answers=False).bring(*["one"] * 100) == CALLS


def test_after_an_outage_the_updater_is_called_again(tmp_path: Path) -> None:
    """A trial that nobody could judge is judged when heartbeats arrive again, and not minutes later."""
    heartbeats = Heartbeats(root_in(tmp_path), answers=True)
    assert heartbeats.bring("one", "one") == 1
    for _ in range(OUTAGES):
        for _ in range(100):
            heartbeats.waker.missed()
        assert heartbeats.bring("one", "one") == 1


def test_a_network_that_comes_and_goes_does_not_call_for_ever(tmp_path: Path) -> None:
    """Each other heartbeat fails for a day, and the updater is called a few times for the request."""
    heartbeats = Heartbeats(root_in(tmp_path), answers=True)
    calls = 0
    for _ in range(1440):
        calls += heartbeats.bring("one")
        heartbeats.waker.missed()
    assert calls == 1 + OUTAGES

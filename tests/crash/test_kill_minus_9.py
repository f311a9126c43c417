"""kill -9 at random moments of real updates: there is always a runnable agent, and never two."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.errors import HostError
from journeyman_updater.model.release import UpdateRequest
from journeyman_updater.run import Ending
from tests.support.kept_host import KeptHost, dummy
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).resolve().parent.parent.parent
LONGEST_SECONDS = 1.5
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="cannot run here: the dummy agents read /proc"
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[KeptHost]:
    """A host on which 0.1.0 runs."""
    kept = KeptHost(tmp_path)
    try:
        kept.start()
        yield kept
    finally:
        kept.stop()


@pytest.mark.slow
def test_twenty_kills(host: KeptHost, capsys: pytest.CaptureFixture[str]) -> None:
    """After each of 20 kills the host ends up on the release that was asked for."""
    _kill_often(host, 20, capsys.disabled)


@pytest.mark.full
@pytest.mark.parametrize("part", range(5))
def test_a_hundred_kills(host: KeptHost, capsys: pytest.CaptureFixture[str], part: int) -> None:
    """As the twenty."""
    _kill_often(host, 20, capsys.disabled)


def _kill_often(host: KeptHost, count: int, aloud: Callable[[], AbstractContextManager[None]]) -> None:
    seed = int(os.environ.get("JOURNEYMAN_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    chance = random.Random(seed)
    seen: dict[str, int] = {}
    for number in range(count):
        release = dummy(f"0.2.{number}")
        request = host.request(release)
        was_killed = _start_and_kill(host, request, chance.uniform(0.1, LONGEST_SECONDS))
        last = host.updater().history()[-1].step if host.root.journal_file.exists() else "-"
        seen[last] = seen.get(last, 0) + was_killed
        if chance.random() < 0.5:
            host.kill()
            host.start(expect=None)
        eventually(lambda: host.reported() is not None, within_seconds=20)
        outcome = host.updater().apply(request)
        ending = outcome.ending
        assert ending in {Ending.COMMITTED, Ending.NOT_NEEDED}, f"seed {seed}, round {number}: {outcome}"
        eventually(lambda: host.reported() == release.version, within_seconds=20)  # noqa: B023
    assert "SECOND AGENT" not in host.starts()
    with aloud():
        print(f"\nseed {seed}: {count} updates, killed after {seen}", end="")  # noqa: T201


def _start_and_kill(host: KeptHost, request: UpdateRequest, after_seconds: float) -> bool:
    words = [str(host.root.path), request.version.spelled, request.url, request.sha256]
    command = [sys.executable, "-m", "tests.support.apply_update", *words]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) as updater:
        try:
            updater.wait(timeout=after_seconds)
        except subprocess.TimeoutExpired:
            updater.kill()
            updater.wait()
            # A child that it had forked, but that has not become its program yet, still holds the lock.
            eventually(lambda: _is_free(host.root.update_lock))
            return True
    return False


def _is_free(lock: Path) -> bool:
    with contextlib.suppress(HostError), FlockLocks().hold(lock):
        return True
    return False

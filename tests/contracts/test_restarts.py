"""Restarts by launchd in each sort of domain, with the smallest of agents, which a Mac can run as well.

`scripts/test --real-launchd` adds the real launchd, on a Mac.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from journeyman_updater.contract import identity_of
from journeyman_updater.errors import RestartError
from tests.support.launchd_bench import FakeLaunchdBench, RealLaunchdBench
from tests.support.manager_bench import ManagerBench
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


BENCHES: dict[str, Callable[[Path], ManagerBench]] = {
    "launchd-system": FakeLaunchdBench,
    "launchd-gui": lambda folder: FakeLaunchdBench(folder, "gui/501"),
    "launchd-user": lambda folder: FakeLaunchdBench(folder, "user/501", ("system", "user/501")),
}
# Managers whose tools can say that they did what they did not do.
LIARS = ("launchd-system",)
REAL_LAUNCHD = "launchd-real"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The real launchd joins only where it was asked for."""
    if "bench" not in metafunc.fixturenames:
        return
    names = list(LIARS if "lie" in metafunc.function.__name__ else BENCHES)
    if metafunc.config.getoption("--real-launchd") and "lie" not in metafunc.function.__name__:
        names.append(REAL_LAUNCHD)
    metafunc.parametrize("bench", names, indirect=True)


@pytest.fixture
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ManagerBench]:
    """A manager whose service is not started."""
    made = (
        _real_launchd(request, tmp_path)
        if request.param == REAL_LAUNCHD
        else BENCHES[request.param](tmp_path)
    )
    try:
        yield made
    finally:
        made.close()


def _real_launchd(request: pytest.FixtureRequest, folder: Path) -> ManagerBench:
    if sys.platform != "darwin":
        pytest.skip("cannot run here: no launchd")
    return RealLaunchdBench(folder, Path(request.config.getoption("--real-launchd")))


def test_names_the_agent_that_it_runs(bench: ManagerBench) -> None:
    """`running` is the very process that the agent itself says it is."""
    bench.start()
    pid = bench.agent.wait_for_start(1)
    eventually(lambda: bench.manager.running() is not None)
    assert bench.manager.running() == identity_of(pid)


def test_names_nothing_before_the_service_is_started(bench: ManagerBench) -> None:
    """Without an agent there is none to name, and that is no error."""
    assert bench.manager.running() is None
    assert bench.manager.token().before is None


def test_a_restart_is_one_stop_in_good_order_and_one_start(bench: ManagerBench) -> None:
    """The agent stops by itself, one other starts, and the manager shows that."""
    bench.start()
    old = bench.agent.wait_for_start(1)
    token = bench.manager.token()
    bench.manager.restart()
    new = bench.agent.wait_for_start(2)
    eventually(lambda: bench.manager.started_since(token))
    assert bench.agent.stops() == [old]
    assert bench.agent.starts() == [old, new]
    assert bench.manager.running() == identity_of(new)


def test_shows_no_start_where_there_was_none(bench: ManagerBench) -> None:
    """An agent that was never restarted is no new start, however often one looks."""
    bench.start()
    bench.agent.wait_for_start(1)
    eventually(lambda: bench.manager.running() is not None)
    token = bench.manager.token()
    assert not bench.manager.started_since(token)
    assert not bench.manager.started_since(token)


def test_three_restarts_are_three_proven_starts(bench: ManagerBench) -> None:
    """Each restart is proven by itself, with the token taken right before it."""
    bench.start()
    for number in range(1, 4):
        bench.agent.wait_for_start(number)
        token = bench.manager.token()
        bench.manager.restart()
        bench.agent.wait_for_start(number + 1)
        eventually(functools.partial(bench.manager.started_since, token))
    assert len(bench.agent.starts()) == 4
    assert len(bench.agent.stops()) == 3


def test_an_agent_that_ignores_the_stop_is_killed_in_the_end(bench: ManagerBench) -> None:
    """After the stop timeout the agent is killed, and another one runs."""
    bench.agent.set("stubborn")
    bench.start()
    old = bench.agent.wait_for_start(1)
    token = bench.manager.token()
    bench.manager.restart()
    bench.agent.wait_for_start(2)
    eventually(lambda: bench.manager.started_since(token))
    assert identity_of(old) is None
    assert bench.agent.stops() == []


def test_starts_what_does_not_run(bench: ManagerBench) -> None:
    """A restart of a service that is down starts it, and that start is proven."""
    bench.start()
    bench.agent.wait_for_start(1)
    eventually(lambda: bench.manager.running() is not None)
    bench.take_down()
    token = bench.manager.token()
    assert token.before is None
    bench.manager.restart()
    bench.agent.wait_for_start(2)
    eventually(lambda: bench.manager.started_since(token))


def test_an_agent_that_died_is_started_by_the_manager(bench: ManagerBench) -> None:
    """What the manager does by itself is a new start, too."""
    bench.start()
    old = bench.agent.wait_for_start(1)
    eventually(lambda: bench.manager.running() is not None)
    token = bench.manager.token()
    os.kill(old, signal.SIGKILL)
    bench.agent.wait_for_start(2)
    eventually(lambda: bench.manager.started_since(token))


def test_a_worker_outlives_the_restart(bench: ManagerBench) -> None:
    """A worker in a session of its own is not touched when its agent is restarted."""
    bench.agent.set("worker")
    bench.start()
    bench.agent.wait_for_start(1)
    worker = identity_of(bench.agent.worker_pid())
    assert worker is not None
    try:
        bench.manager.restart()
        bench.agent.wait_for_start(2)
        assert worker.is_running()
    finally:
        os.kill(worker.pid, signal.SIGKILL)


def test_a_lie_proves_nothing(bench: ManagerBench) -> None:
    """A manager that says that it did, and did not, is not believed."""
    bench.start()
    old = bench.agent.wait_for_start(1)
    token = bench.manager.token()
    bench.lie()
    with contextlib.suppress(RestartError):
        bench.manager.restart()
    assert not bench.manager.started_since(token)
    assert bench.agent.starts() == [old]

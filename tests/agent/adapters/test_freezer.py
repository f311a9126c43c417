"""Work stands still without its knowing, where it has a cgroup of its own."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.contract.cgroup import set_frozen
from tests.support.freezable import mount_of_version_2, own_cgroup
from tests.support.job_control import Desk
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A worker in a cgroup of its own."""
    mount = mount_of_version_2()
    desk = Desk(tmp_path, mount)
    with own_cgroup(mount, desk.record):
        yield desk
        desk.end()


def test_a_shell_with_job_control_does_not_see_that_it_stood_still(desk: Desk) -> None:
    """What it waits for has neither stopped nor ended once all of it goes on, by another agent perhaps."""
    desk.begin()
    desk.stand_still()
    desk.go_on_to_the_end()
    assert desk.said() == ["began", "went on with 0"]


def test_work_that_is_frozen_ends_in_good_order(desk: Desk) -> None:
    """It is thawed to hear that it shall end."""
    desk.stand_still()
    assert desk.end() == signal.SIGTERM


def test_frozen_work_can_be_killed(desk: Desk) -> None:
    """The last rung of the ladder needs no thaw, and the shim still tells how it ended."""
    desk.begin()
    desk.stand_still()
    desk.workers.signal(desk.record, signal.SIGKILL)
    ended = asyncio.run(asyncio.wait_for(desk.workers.wait(desk.record), 40))
    assert ended is not None
    assert ended.signal == signal.SIGKILL


def test_a_cgroup_of_others_is_left_alone(tmp_path: Path) -> None:
    """A worker in its agent's cgroup is stopped by the signal; the freezer would take the agent along."""
    mount = mount_of_version_2()
    desk = Desk(tmp_path, mount)
    record = desk.record
    assert not set_frozen(record.shim.pid, record.worker_id, frozen=True, mount=str(mount))
    desk.workers.signal(record, signal.SIGSTOP)
    state = Path(f"/proc/{record.worker.pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    assert desk.end() == signal.SIGTERM

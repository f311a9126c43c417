"""Reason codes of the end of an update, and of what a host lacks; those of a fetch are beside the fetcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.adapters.exec_check import SubprocessExecCheck
from journeyman_updater.adapters.flock import FlockLocks
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import TrialReport
from journeyman_updater.errors import HostError, Reason, ReleaseError, RestartError
from journeyman_updater.model.journal import Step
from journeyman_updater.model.release import VersionId
from journeyman_updater.ports import RestartToken
from journeyman_updater.transaction import Ending, Transaction
from tests.crash.scenarios import make_scenario
from tests.crash.world import World
from tests.simulator.releases import SmallRelease


class BusyWorld(World):
    """Its agents have work that nobody could adopt, and never end it."""

    def _report(self, agent: Any, *, stopped: bool = False) -> None:
        super()._report(agent, stopped=stopped)
        with self.quietly():
            report = TrialReport.from_json(self.disk.read(self.root.trial_file))
            self.disk.write(self.root.trial_file, replace(report, busy=1).to_json())


def test_work_that_does_not_end_is_waited_for_by_its_deadline(tmp_path: Path) -> None:
    """The update goes on after the deadline, not before it, and the journal says DrainTimeout."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.__class__ = BusyWorld
    world.wait(1)
    assert world.update(scenario.wanted.request()).ending is Ending.COMMITTED
    said = [record for record in world.tools().records.history() if record.step == Step.DRAIN]
    assert [record.detail.get("reason") for record in said] == [None, Reason.DRAIN_TIMEOUT]
    took_seconds = (said[1].mono_ns - said[0].mono_ns) / 1e9
    assert world.limits.drain <= took_seconds <= world.limits.drain + world.limits.poll


def test_a_trial_that_a_person_ends_is_rolled_back(tmp_path: Path) -> None:
    """`rollback` during a trial undoes it with RolledBack, and the request does not bring it back."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.is_plane_up = False
    assert world.update(scenario.wanted.request()).ending is Ending.INCONCLUSIVE
    outcome = Transaction(world.tools()).roll_back()
    assert (outcome.ending, outcome.reason) == (Ending.ROLLED_BACK, Reason.ROLLED_BACK)
    assert world.agent is not None
    assert world.agent.release == scenario.old[1]
    assert world.update(scenario.wanted.request()).reason is Reason.DENYLISTED


def test_an_active_release_that_does_not_come_back_is_a_failed_rollback(tmp_path: Path) -> None:
    """The trial is over all the same, and it is said that nothing reports."""
    scenario = make_scenario(tmp_path, "crash")
    silent = replace(scenario.old[1], behaviour="hang")
    scenario = replace(scenario, old=(scenario.old[0], silent))
    world = scenario.begin()
    # An installation lays it down; here agents do, and one that hangs does not get that far.
    world.disk.mkdir(world.root.agent)
    outcome = world.update(scenario.wanted.request())
    assert (outcome.ending, outcome.reason) == (Ending.REFUSED, Reason.ROLLBACK_FAILED)
    status = world.tools().records.load().status
    assert status.trial is None
    assert status.has_rejected(scenario.wanted.sha256)


class UnprovenWorld(World):
    """Its service manager never shows a new start, as one does that answers ok and does nothing."""

    def started_since(self, token: RestartToken) -> bool:
        return False


def test_a_restart_that_nobody_can_prove_commits_nothing(tmp_path: Path) -> None:
    """A healthy trial whose start cannot be shown is started thrice, then undone, and not rejected."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    world.__class__ = UnprovenWorld
    outcome = world.update(scenario.wanted.request())
    assert (outcome.ending, outcome.reason) == (Ending.ROLLED_BACK, Reason.RESTART_UNPROVEN)
    assert world.starts == ["0.1.0", *3 * ["0.2.0"], "0.1.0"]
    status = world.tools().records.load().status
    assert status.active is not None
    assert status.active.sha256 == scenario.old[1].sha256
    assert status.trial is None
    assert not status.has_rejected(scenario.wanted.sha256)


def test_without_a_parent_nobody_is_asked_for_a_restart(tmp_path: Path) -> None:
    """No parent would start the agent again, so it is not stopped either."""
    with pytest.raises(RestartError) as refused:
        ParentServiceManager(tmp_path / "guard.json", SystemClock()).restart()
    assert refused.value.reason is Reason.RESTART_NOT_PERMITTED


def test_a_second_updater_is_refused_at_once(tmp_path: Path) -> None:
    """Two updates at once are impossible, by timer and by hand alike."""
    path = tmp_path / "update.lock"
    with FlockLocks().hold(path), pytest.raises(HostError) as refused, FlockLocks().hold(path):
        raise AssertionError("two hold the lock")
    assert refused.value.reason is Reason.SELF_UPDATE_UNAVAILABLE


@pytest.mark.slow
def test_a_kill_at_the_start_is_a_bad_signature_on_macos(tmp_path: Path) -> None:
    """The kernel of macOS kills what its code signature does not cover; there the release is to blame."""
    SmallRelease(program="#!/bin/sh\nkill -KILL $$\n").lay_out(tmp_path)
    check = SubprocessExecCheck(SystemClock(), platform="darwin")
    with pytest.raises(ReleaseError) as refused:
        check.run(tmp_path, product="journeyman", version=VersionId("0.2.0"))
    assert refused.value.reason is Reason.CODE_SIGNATURE_INVALID


def test_what_nothing_needs_is_removed_at_the_next_run(tmp_path: Path) -> None:
    """Half a version and an old part of a download go; what is named in the state stays."""
    scenario = make_scenario(tmp_path, "good")
    world = scenario.begin()
    half = world.root.versions / "9.9.9-0123456789ab"
    part = world.root.downloads / f"{'0' * 64}.tar.gz.part"
    world.disk.mkdir(half)
    world.disk.write(part, b"half")
    Transaction(world.tools()).tidy()
    assert half.name not in world.disk.names(world.root.versions)
    assert world.disk.names(world.root.downloads) == []
    assert {slot.folder for slot in world.tools().records.load().status.slots()} <= set(
        world.disk.names(world.root.versions)
    )

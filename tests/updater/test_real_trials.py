"""Updates with real processes: parent, guard and dummy agents, short deadlines, no control plane."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.contract import identity_of
from journeyman_updater.errors import Reason, RequestError
from journeyman_updater.model.release import UpdateRequest, VersionId
from journeyman_updater.run import Ending
from tests.support.kept_host import KeptHost, dummy
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: the dummy agents read /proc"),
]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[KeptHost]:
    """A host on which 0.1.0 runs."""
    kept = KeptHost(tmp_path)
    try:
        kept.start()
        yield kept
    finally:
        kept.stop()


def test_a_good_release_runs_after_one_restart(host: KeptHost) -> None:
    """A good release is fetched, tried, proven and committed; the agent was started once for it."""
    outcome = host.updater().apply(host.request(dummy("0.2.0")))
    assert outcome.ending is Ending.COMMITTED, outcome
    assert host.reported() == "0.2.0"
    assert host.starts() == ["0.1.0", "0.2.0"]


@pytest.mark.parametrize(
    ("behaviour", "reason", "starts"),
    [
        ("crash", Reason.CRASH_LOOP, 3),
        ("hang", Reason.NOT_READY, 3),
        ("late", Reason.UNHEALTHY, 3),
        ("mute", Reason.UNHEALTHY, 1),
    ],
)
def test_a_bad_release_is_undone_and_never_tried_again(
    host: KeptHost, behaviour: str, reason: Reason, starts: int
) -> None:
    """A release that fails by itself is undone in time, and asking again moves nothing."""
    request = host.request(dummy("0.2.0", behaviour))
    began = time.monotonic()
    outcome = host.updater().apply(request)
    assert (outcome.ending, outcome.reason) == (Ending.ROLLED_BACK, reason)
    assert time.monotonic() - began < 75
    assert host.reported() == "0.1.0"
    assert host.starts() == ["0.1.0", *["0.2.0"] * starts, "0.1.0"]
    assert host.updater().apply(request).reason is Reason.DENYLISTED
    assert len(host.starts()) == starts + 2


def test_a_good_release_follows_a_bad_one(host: KeptHost) -> None:
    """After a rollback the next release goes through."""
    host.updater().apply(host.request(dummy("0.2.0", "crash")))
    assert host.updater().apply(host.request(dummy("0.3.0"))).ending is Ending.COMMITTED
    assert host.reported() == "0.3.0"


def test_a_release_in_an_outage_stays_on_trial(host: KeptHost) -> None:
    """Heartbeats that are attempted and cannot arrive are no evidence; the release runs on."""
    outcome = host.updater().apply(host.request(dummy("0.2.0", "outage")))
    assert (outcome.ending, outcome.reason) == (Ending.INCONCLUSIVE, Reason.UNREACHABLE)
    assert host.reported() == "0.2.0"
    assert host.updater().run_once().ending is Ending.INCONCLUSIVE
    assert host.starts() == ["0.1.0", "0.2.0"]
    assert host.updater().rollback().ending is Ending.ROLLED_BACK
    assert host.reported() == "0.1.0"


def test_what_is_not_what_it_says_stops_nothing(host: KeptHost) -> None:
    """Another version than was asked for is refused while the old release runs on, undisturbed."""
    before = host.agent_pid()
    request = host.request(dummy("0.2.0"))
    lie = UpdateRequest(VersionId("0.9.0"), request.url, request.sha256)
    assert host.updater().apply(lie).reason is Reason.VERSION_MISMATCH
    assert host.agent_pid() == before
    assert host.starts() == ["0.1.0"]


def test_a_file_on_this_host_is_applied_without_a_network(host: KeptHost) -> None:
    """`apply FILE` knows version and digest from the file; what is no release is refused in one line."""
    archive = dummy("0.2.0").build(host.folder)
    assert host.updater().apply_file(archive).ending is Ending.COMMITTED
    assert host.updater().apply_file(archive).ending is Ending.NOT_NEEDED
    (host.folder / "page.tar.gz").write_text("<html>")
    for name in ("page.tar.gz", "gone.tar.gz"):
        with pytest.raises(RequestError, match="cannot be used as a release"):
            host.updater().apply_file(host.folder / name)
    assert host.starts() == ["0.1.0", "0.2.0"]


def test_the_parent_starts_the_agent_again(host: KeptHost) -> None:
    """An agent that is killed is back, and there is never a second one."""
    before = host.agent_pid()
    os.kill(before, signal.SIGKILL)
    eventually(lambda: host.agent_pid() != before and host.reported() == "0.1.0", within_seconds=20)
    assert host.starts() == ["0.1.0", "0.1.0"]


def test_a_new_parent_adopts_the_agent_of_one_that_was_killed(host: KeptHost) -> None:
    """After kill -9 of the parent, the next one keeps the agent that still runs."""
    agent, parent = host.agent_pid(), host.parent
    assert parent is not None
    parent.kill()
    parent.wait()
    host.start()
    assert host.agent_pid() == agent
    assert host.starts() == ["0.1.0"]


def test_the_parent_passes_the_stop_on(host: KeptHost) -> None:
    """SIGTERM to the parent stops the agent in good order, and both are gone."""
    agent = identity_of(host.agent_pid())
    assert agent is not None
    host.stop()
    assert not agent.is_running()
    assert b'"stopped": true' in host.root.trial_file.read_bytes()

"""Releases that fail in each way that counts, with a real agent under its guard, while the plane is down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman_updater.errors import Reason
from journeyman_updater.model.release import UpdateRequest
from journeyman_updater.publish import examine, sign
from journeyman_updater.run import Ending, open_updater
from tests.support.installed_nodes import InstalledNode, installed_node
from tests.support.plane import PlaneProcess, spawn_plane
from tests.support.real_releases import BASE_VERSION, CRASHES, HANGS, MUTE, STANDS_STILL, RealReleases
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real-releases")]

UNDONE_WITHIN_SECONDS = 75


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlaneProcess]:
    with spawn_plane(tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="module")
def node(
    plane: PlaneProcess, real_releases: RealReleases, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InstalledNode]:
    """A node that runs the first release, and whose plane has gone away."""
    first = signed(plane, real_releases.derive(BASE_VERSION))
    folder = tmp_path_factory.mktemp("node")
    key = plane.data_dir / "release.pub"
    token_file = plane.data_dir / "admin.token"
    # How long a loop may stand still hangs on it.
    patience = {"request_timeout_seconds": "2"}
    with installed_node(
        folder, first, key, name="node-a", server=plane.url, token_file=token_file, options=patience
    ) as running:
        # Whether the parent's first run of the updater is over: it would hold the lock.
        eventually(
            lambda: '"ending"' in running.log() or "journeyman-updater:" in running.log(), within_seconds=60
        )
        plane.kill()
        yield running


def signed(plane: PlaneProcess, artifact: Path) -> Path:
    key, expires = (plane.data_dir / "release.key").read_text(), datetime.now(UTC) + timedelta(days=1)
    signature = sign(examine(artifact), key, sequence=None, expires=expires.replace(microsecond=0))
    artifact.with_name(artifact.name + ".minisig").write_bytes(signature)
    return artifact


def request(plane: PlaneProcess, artifact: Path) -> UpdateRequest:
    """Asks for a release that lies on this host."""
    candidate = examine(signed(plane, artifact))
    return UpdateRequest(candidate.manifest.version, artifact.as_uri(), candidate.sha256)


@pytest.mark.full  # Four minutes; the default tier has the same with small releases in tests/updater.
@pytest.mark.parametrize(
    ("version", "at_run", "reason"),
    [
        pytest.param("2.0.0", CRASHES, Reason.CRASH_LOOP, id="crashes"),
        pytest.param("2.0.1", HANGS, Reason.NOT_READY, id="hangs"),
        pytest.param("2.0.2", STANDS_STILL, Reason.UNHEALTHY, id="stands-still"),
        pytest.param("2.0.3", MUTE, Reason.UNHEALTHY, id="mute"),
    ],
)
def test_a_release_that_fails_by_itself_is_undone_without_the_plane(
    plane: PlaneProcess,
    node: InstalledNode,
    real_releases: RealReleases,
    version: str,
    at_run: str,
    reason: Reason,
) -> None:
    """Within 75 s the former release runs again, and the bad one is never tried again."""
    good = node.running_tree()
    wanted = request(plane, real_releases.derive(version, at_run=at_run))
    outcome = open_updater(node.root).apply(wanted)
    ended = time.monotonic()
    assert (outcome.ending, outcome.reason) == (Ending.ROLLED_BACK, reason), outcome
    activated = [item.mono_ns for item in node.history() if item.step == "activate"][-1]
    assert ended - activated / 1e9 < UNDONE_WITHIN_SECONDS
    eventually(node.agent, within_seconds=30)
    assert node.running_tree() == good
    again = open_updater(node.root).apply(wanted)
    assert (again.ending, again.reason) == (Ending.REFUSED, Reason.DENYLISTED)


def test_a_good_release_is_kept_once_the_plane_is_back(
    plane: PlaneProcess, node: InstalledNode, real_releases: RealReleases
) -> None:
    """Tried during an outage it is inconclusive and goes on running; then it is committed."""
    updater = open_updater(node.root)
    outcome = updater.apply(request(plane, real_releases.derive("2.1.0")))
    assert (outcome.ending, outcome.reason) == (Ending.INCONCLUSIVE, Reason.UNREACHABLE), outcome
    assert node.running_tree().startswith("2.1.0-")
    plane.start()
    try:
        eventually(lambda: updater.run_once().ending is Ending.COMMITTED, within_seconds=60, every_seconds=1)
        active = node.state().status.active
        assert active is not None
        assert active.version.spelled == "2.1.0"
    finally:
        plane.kill()

"""Names of services, and what they stand for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman_updater.adapters.service.choice import service_manager
from journeyman_updater.contract import StateRoot
from tests.support.launchd_bench import FakeLaunchdBench
from tests.support.manager_bench import HastyClock

pytestmark = pytest.mark.slow
UID = os.getuid()
DOMAINS = ("system", f"gui/{UID}", f"user/{UID}")


@pytest.fixture(params=DOMAINS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakeLaunchdBench]:
    """A job that belongs into one of the domains and is not registered."""
    made = FakeLaunchdBench(tmp_path, request.param, DOMAINS)
    try:
        yield made
    finally:
        made.close()


def test_each_kind_of_launchd_has_its_domain(bench: FakeLaunchdBench) -> None:
    """The job is looked for everywhere and registered where it belongs."""
    kinds = dict(zip(DOMAINS, ("launchd", "launchd-gui", "launchd-user"), strict=True))
    manager = service_manager(
        kinds[bench.domain],
        StateRoot(bench.folder),
        HastyClock(0.1),
        stop_seconds=1,
        service_folder=str(bench.plist.parent),
        launchctl=str(bench.tool.folder / "launchctl"),
    )
    manager.restart()
    bench.agent.wait_for_start(1)
    first = [call[1].rpartition("/")[0] for call in bench.tool.calls[:3]]
    assert first[0] == bench.domain
    assert set(first) == set(DOMAINS)
    assert [call[1] for call in bench.tool.calls if call[0] == "bootstrap"] == [bench.domain]

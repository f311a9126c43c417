"""Restarts, an update and a rollback of the agent, on each service manager, beside a model server in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.survival import survive
from tests.support.survival_on_systemd import container_for_survival, survive_inside
from tests.support.systemd_container import SystemdContainer

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("service", ["none", "runit", pytest.param("launchd", marks=pytest.mark.full)])
def test_no_token_of_a_stream_is_lost(service: str, tmp_path: Path) -> None:
    """Over five restarts, an update and a rollback a stream gets all of its tokens from the same process."""
    survive(service, tmp_path).check()


@pytest.fixture(scope="module")
def container() -> Iterator[SystemdContainer]:
    with container_for_survival() as made:
        yield made


@pytest.mark.full
@pytest.mark.parametrize("service", ["systemd", "systemd-user"])
def test_no_token_of_a_stream_is_lost_under_systemd(container: SystemdContainer, service: str) -> None:
    """The same under real systemd, as a service of the system and as one of a user."""
    survive_inside(container, service).check()

"""The contract on real systemd, run in a container by test_service_manager.py, as root and as a user."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.service_manager import ServiceManagerContract, UpdateContract
from tests.support.managed_hosts import SystemdHost

PLACES = "/srv/journeyman" if os.geteuid() == 0 else str(Path("~").expanduser())


@pytest.fixture
def host() -> Iterator[SystemdHost]:
    """The system's manager for root, and for others their own."""
    folder = Path(tempfile.mkdtemp(dir=PLACES))
    folder.chmod(0o755)
    made = SystemdHost(folder, user=os.geteuid() != 0)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class TestSystemd(ServiceManagerContract):
    """The port."""


class TestUpdates(UpdateContract):
    """Whole updates."""

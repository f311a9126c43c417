"""A plane of its own for each test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.plane import RunningPlane, running_plane


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    """A real plane in a thread, stopped at the end."""
    with running_plane(tmp_path) as running:
        yield running


@pytest.fixture
def client(plane: RunningPlane) -> Iterator[httpx.Client]:
    """An HTTP client of that plane, with its token."""
    with plane.client() as opened:
        yield opened

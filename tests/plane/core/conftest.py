from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.plane_objects import PlaneInMemory


@pytest.fixture
def plane() -> Iterator[PlaneInMemory]:
    """A plane in memory with nothing in it."""
    made = PlaneInMemory()
    yield made
    made.store.close()

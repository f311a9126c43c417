"""One plane for all tests of a file; each test begins with an empty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from journeyman_plane.adapters.crd_files import load_registry
from journeyman_plane.ports import Key
from tests.support.plane import RunningPlane, running_plane


@pytest.fixture(scope="module")
def shared_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A real plane in a thread."""
    with running_plane(tmp_path_factory.mktemp("shared")) as running:
        yield running


@pytest.fixture
def plane(shared_plane: RunningPlane) -> Iterator[RunningPlane]:
    """The plane of this file, with what a test left behind removed."""
    yield shared_plane
    store = shared_plane.store
    for resource in load_registry().resources:
        if resource.plural != "namespaces":
            for left in store.select(resource.group, resource.plural)[0]:
                metadata = left["metadata"]
                key = Key(resource.group, resource.plural, metadata.get("namespace", ""), metadata["name"])
                store.delete(key)

"""A real limit on memory, for tests that bring a host under pressure without harming it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

V1_GROUPS = Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_limit(limit_bytes: int) -> Iterator[Path]:
    """A memory cgroup of version 1 below ours; skips the test where there can be none."""
    own = next(
        (
            line.rpartition(":")[2]
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if ":memory:" in line
        ),
        None,
    )
    if own is None or os.geteuid() != 0:
        pytest.skip("cannot run here: no memory cgroup of version 1 that we may write")
    group = V1_GROUPS / own.lstrip("/") / f"journeyman-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
    except OSError as error:
        pytest.skip(f"cannot run here: {error}")
    yield group
    group.rmdir()

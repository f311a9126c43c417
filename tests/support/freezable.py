"""Workers in a cgroup of version 2 of their own, as they have it in a unit of systemd's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman_updater.contract import WorkerRecord
from journeyman_updater.contract.cgroup import PREFIX
from tests.support.waiting import eventually


def mount_of_version_2() -> Path:
    """Where it is mounted; skips the test where it is not, or may not be written."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2" and os.access(place, os.W_OK):
            return Path(place)
    pytest.skip("cannot run here: no cgroup of version 2 that we may write")


@contextmanager
def own_cgroup(mount: Path, record: WorkerRecord) -> Iterator[Path]:
    """Moves shim and worker into `worker-<id>`; it is gone after the block, and the worker has to be, too."""
    unit = mount / f"journeyman-test-{os.getpid()}"
    own = unit / f"{PREFIX}{record.worker_id}"
    own.mkdir(parents=True)
    try:
        for process in (record.shim, record.worker):
            (own / "cgroup.procs").write_text(str(process.pid))
        yield own
    finally:
        # The kernel lets go of a cgroup a moment after the last process in it has been reaped.
        eventually(lambda: "populated 0" in (own / "cgroup.events").read_text())
        own.rmdir()
        unit.rmdir()

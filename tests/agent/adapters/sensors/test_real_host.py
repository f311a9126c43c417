"""Sensors and gates on real file systems, under a real memory limit and in a real PRoot guest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.gates.marks import DiskMarks
from journeyman.core.gates.reclaim import reclaim_was_ineffective
from journeyman.core.gates.signals import BTRFS_CHUNK_BYTES, BTRFS_METADATA_FULL_PERCENT
from tests.support.debian import ensure_debian_package
from tests.support.memory_group import memory_limit
from tests.support.real_disk import CANNOT_MOUNT

pytestmark = pytest.mark.slow
SUPPORT = Path(__file__).resolve().parents[3] / "support"
DEADLINE_SECONDS = 120
PACKAGES = {"mkfs.btrfs": "btrfs-progs", "mkfs.ext4": "e2fsprogs"}


def on_a_real_disk(kind: str, folder: Path, program: str) -> dict[str, Any]:
    """What `real_disk.py` measured on a loop device, in a mount namespace of its own."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        pytest.skip("cannot run here: loop devices need root")
    ensure_debian_package(PACKAGES[program], program)
    ensure_debian_package("util-linux", "unshare")
    isolated = ["unshare", "-m", "--propagation", "private"]
    done = subprocess.run(
        [*isolated, sys.executable, str(SUPPORT / "real_disk.py"), kind, str(folder)],
        capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS, env=with_our_packages(),
    )  # fmt: skip
    if done.returncode == CANNOT_MOUNT:
        pytest.skip(f"cannot run here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def with_our_packages() -> dict[str, str]:
    """The environment of a child that imports what this process imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_deleting_what_du_counts_frees_little_on_compressed_btrfs(tmp_path: Path) -> None:
    """`du` promises 256 MiB, zstd had made a few of them: the clean-up is called ineffective."""
    found = on_a_real_disk("compressed", tmp_path, "mkfs.btrfs")
    before, after = (found[when]["disk.work.free"] for when in ("before", "after"))
    assert found["promised"] >= 250 << 20
    assert after >= before
    assert reclaim_was_ineffective(DiskMarks(), found["promised"], before, after)


def test_btrfs_without_room_for_metadata_is_noticed_before_a_write_fails(tmp_path: Path) -> None:
    """With a third of it free by statvfs nothing can be created any more; the gate sees that earlier."""
    found = on_a_real_disk("metadata", tmp_path, "mkfs.btrfs")
    fresh, warned = found["fresh"], found["warned"]
    assert found["refused"] == "ENOSPC"
    assert fresh["disk.work.unallocated"] > BTRFS_CHUNK_BYTES
    assert warned is not None
    assert warned["files"] < found["files"]
    assert warned["disk.work.free"] > warned["disk.work.total"] / 3
    assert warned["disk.work.unallocated"] < BTRFS_CHUNK_BYTES
    assert warned["disk.work.metadata_used"] > BTRFS_METADATA_FULL_PERCENT


def test_a_full_ext4_is_full_for_us_while_root_has_a_reserve(tmp_path: Path) -> None:
    """f_bfree still shows megabytes; what we may write is nothing."""
    found = on_a_real_disk("full", tmp_path, "mkfs.ext4")
    assert found["fresh"]["disk.work.free"] > 0
    assert found["free_for_root"] > 20 << 20
    assert found["after"]["disk.work.free"] == 0


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A memory limit of 256 MiB."""
    with memory_limit(256 << 20) as group:
        yield group


@pytest.mark.xdist_group("memory-pressure")
def test_the_gate_closes_before_the_oom_killer_acts_and_opens_again(memory_group: Path) -> None:
    """A worker eats a real limit: the gate holds, then sheds that one alone, and no OOM kill is counted."""
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "real_pressure.py"), str(memory_group)],
        capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS, env=with_our_packages(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["levels"][0] == "OPEN"
    assert found["levels"][-1] == "OPEN"
    assert "HOLD" in found["levels"]
    assert "KILL" in found["levels"]
    assert found["shed"] == ["greedy"]
    assert found["signal"] == 9
    assert found["modest_survived"]
    assert "oom_kill 0" in (memory_group / "memory.oom_control").read_text()


def test_a_real_proot_guest_is_not_believed(tmp_path: Path) -> None:
    """With constant files bound over /proc the guest's load comes from sysinfo(2), and the ban is visible."""
    proot = ensure_debian_package("proot")
    fakes = {"uptime": "124.08 932.80\n", "loadavg": "0.12 0.07 0.02 2/165 765\n"}
    binds = []
    for name, text in fakes.items():
        (tmp_path / name).write_text(text)
        binds += ["-b", f"{tmp_path / name}:/proc/{name}"]
    script = (
        "import json\n"
        "from journeyman.adapters.sensors.access import HostFiles\n"
        "from journeyman.adapters.sensors.catalogue import Host, host_facts\n"
        "from journeyman.adapters.sensors.load import Load\n"
        "host = Host()\n"
        "(load,) = Load(host.files, host.boot).read()\n"
        "print(json.dumps([open('/proc/loadavg').read(), load.source, host_facts(host).proot]))\n"
    )
    done = subprocess.run(
        [proot, *binds, sys.executable, "-c", script],
        capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS, env=with_our_packages(),
    )  # fmt: skip
    if done.returncode != 0 and "proot error: ptrace" in done.stderr:
        pytest.skip("cannot run here: ptrace is forbidden")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [fakes["loadavg"], "sysinfo", True]

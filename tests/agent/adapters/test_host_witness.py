"""What the host is seen to be like when a job begins and when it has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman.adapters.host_witness import HostWitness
from journeyman.adapters.sensors.access import HostFiles, Text, run_command
from journeyman.core.failure import Kills
from journeyman.core.gates.host_class import HostClass
from journeyman.model.readings import Quality
from tests.support.gates import reading
from tests.support.host_tree import Programs, host_files

VERSION_2 = {
    "proc/vmstat": "nr_free_pages 1\noom_kill 7\npgfault 9",
    "proc/self/cgroup": "0::/system.slice/dev.journeyman.agent.service",
    "sys/fs/cgroup/system.slice/dev.journeyman.agent.service/memory.events":
        "low 0\nhigh 0\nmax 40\noom 2\noom_kill 1\noom_group_kill 0",
}  # fmt: skip
VERSION_1 = {
    "proc/self/cgroup": "4:memory:/jobs/one",
    "sys/fs/cgroup/memory/jobs/one/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 3",
    "sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/memory/jobs/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5",
    "sys/fs/cgroup/memory/jobs/memory.limit_in_bytes": "1000000",
    "sys/fs/cgroup/memory/jobs/memory.usage_in_bytes": "900000",
    "sys/fs/cgroup/memory/jobs/memory.stat": "total_inactive_file 0",
}


def witness(folder: Path, files: dict[str, str], host: HostClass = HostClass.LINUX_SERVER) -> HostWitness:
    return HostWitness(
        host_files(folder, files),
        Programs({}),
        host=host,
        readings=lambda: [reading("memory.available_percent", 40.0)],
        slept_seconds=lambda: 12.0,
    )


def test_version_2_tells_kills_and_hits_of_the_limit_apart(tmp_path: Path) -> None:
    """Of the whole host, of our group, and how often its own limit was the reason."""
    found = witness(tmp_path, VERSION_2).surroundings()
    assert found.kills == Kills(host=7, group=1, group_limit=2)
    assert (found.available_memory_percent, found.slept_seconds) == (40.0, 12.0)


def test_version_1_counts_for_the_group_that_has_a_limit(tmp_path: Path) -> None:
    """A group without one also counts what the host killed; how often a limit was hit nobody counts."""
    assert witness(tmp_path, VERSION_1).surroundings().kills == Kills(host=None, group=5, group_limit=None)


def test_a_phones_counters_are_not_believed(tmp_path: Path) -> None:
    """PRoot fakes /proc/vmstat with a constant."""
    assert witness(tmp_path, VERSION_2, HostClass.PHONE_PROOT).surroundings().kills == Kills()


def test_oomd_is_asked_for_what_it_said_since_the_start(tmp_path: Path) -> None:
    """From the journal of its unit; a host without a journal, or one that may not be read, says nothing."""
    line = "Killed /system.slice/dev.journeyman.agent.service due to memory used being more than 90.00%"
    programs = Programs({"journalctl": f"Started.\n{line}\n"})
    found = HostWitness(
        host_files(tmp_path, {}), programs, host=HostClass.LINUX_SERVER, readings=list, slept_seconds=float
    )
    assert found.oomd("1970-01-01T00:01:40.500000Z") == line
    assert programs.calls[0].endswith("--unit=systemd-oomd.service --since=@100")
    programs.printed["journalctl"] = Text(None, Quality.DENIED, "not in the group adm")
    assert found.oomd("1970-01-01T00:01:40.500000Z") == ""


@pytest.mark.slow
def test_this_host_can_be_looked_at() -> None:
    """Whatever it is, nothing is raised, and a journal that has nothing says nothing."""
    here = HostWitness(
        HostFiles(),
        run_command,
        host=HostClass.LINUX_SERVER,
        readings=list,
        slept_seconds=float,
    )
    kills = here.surroundings().kills
    assert kills.host is None or kills.host >= 0
    assert here.oomd("2099-01-01T00:00:00Z") == ""

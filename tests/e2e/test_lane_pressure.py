"""Real memory pressure on a real agent: the ladder ends the right job, and the gate opens again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import memory_stall
from tests.support.agents import ROOMY, AgentProcess, agent
from tests.support.memory_group import memory_limit
from tests.support.waiting import eventually

# One at a time: what happens in one of them is seen by all in /proc/pressure.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("memory-pressure")]

LIMIT_BYTES = 256 << 20
END_SECONDS = 90.0
# Nobody listens there: the lane needs no control plane.
NOWHERE = "http://127.0.0.1:9"
TICKS = f"""{ROOMY}
[gates]
tick_working_seconds = 0.5
tick_idle_seconds = 0.5
"""
# Wide marks, so that the one who eats is found long before the kernel would act.
AVAILABLE_MARKS = f"""{TICKS}
[gates.memory]
reserve_bytes = 0
hold_available_percent = 30
kill_available_percent = 25
open_available_percent = 35
open_dwell_seconds = 1
"""
# What a few readers can do to a host of many cores, in shares of the time of all its work.
STALL_MARKS = f"""{TICKS}
[gates.memory]
hold_stall_percent = 0.05
drain_stall_percent = 0.08
kill_stall_percent = 0.1
open_stall_percent = 0.04
stall_after_seconds = 0
open_dwell_seconds = 1
"""
BLIND_MARKS = f"""{TICKS}
[gates.memory]
reserve_bytes = 0
hold_available_percent = 0
kill_available_percent = 0
open_available_percent = 0
"""
EATS = "import sys, threading; kept = b'x' * (int(sys.argv[1]) << 20); print('fed', flush=True)"
EATER = (sys.executable, "-S", "-c", f"{EATS}; threading.Event().wait(float(sys.argv[2]))")


@dataclass(frozen=True)
class Pressed:
    """An agent, and what its jobs may take.

    Attributes:
        group: the memory cgroup.
        agent: the agent, which is not in it.
        run: the command that runs a job.
    """

    group: Path
    agent: AgentProcess
    run: tuple[str, ...]

    def take_in_the_agent(self) -> None:
        """Jobs are started from there, so they count, and what the agent has taken so far does not."""
        assert self.agent.process is not None
        (self.group / "cgroup.procs").write_text(str(self.agent.process.pid))

    def oom_kills(self) -> str:
        return (self.group / "memory.oom_control").read_text()


@contextmanager
def pressed(folder: Path, marks: str, group: Path) -> Iterator[Pressed]:
    """An agent with those marks beside a group; at the end nothing runs in the group."""
    token, root = folder / "token", folder / "node-a"
    token.write_text("none")
    root.mkdir()
    (root / "config.toml").write_text(marks)
    words = ("lane", "run", "--cpu", "0", "--state-root", str(root), "--json", "--")
    with agent(folder, NOWHERE, token) as running:
        yield Pressed(group, running, (sys.executable, "-m", "journeyman", *words))
    eventually(lambda: not (group / "cgroup.procs").read_text().split(), within_seconds=END_SECONDS)


def begun(command: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """A job that has taken its memory."""
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == b"fed\n"
    return job


def ended(command: tuple[str, ...], **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A job from its beginning to its end, with these variables added to the environment."""
    environment = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, check=False, timeout=END_SECONDS, env=environment)


def receipt_of(job: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """Its last word."""
    found: dict[str, Any] = json.loads(job.stderr.splitlines()[-1])
    return found


def all_well_again(host: Pressed, modest: subprocess.Popen[bytes]) -> None:
    """The modest job goes on, a new one is admitted, and the kernel has killed nobody."""
    assert ended((*host.run, "true")).returncode == 0
    assert modest.poll() is None
    assert "oom_kill 0" in host.oom_kills()
    modest.send_signal(signal.SIGTERM)
    modest.communicate(timeout=END_SECONDS)


def test_pressure_sheds_the_biggest_job_and_the_rest_goes_on(tmp_path: Path) -> None:
    """No OOM kill; the greedy job's receipt names the gate, and a new job is admitted afterwards."""
    with memory_limit(LIMIT_BYTES) as group, pressed(tmp_path, AVAILABLE_MARKS, group) as host:
        host.take_in_the_agent()
        modest = begun((*host.run, *EATER, "16", "1000"))
        greedy = ended((*host.run, *EATER, "165", "1000"))
        receipt = receipt_of(greedy)
        assert greedy.returncode == 128 + signal.SIGKILL
        assert receipt["why"] == "GateStopped:memory"
        assert [step["do"] for step in receipt["steps"]] == ["kill"]
        assert receipt["peakMemoryBytes"] > 165 << 20
        all_well_again(host, modest)


def test_a_host_that_waits_for_memory_sheds_who_makes_it_wait(tmp_path: Path) -> None:
    """By /proc/pressure alone, as memory is left: one job ends, no OOM kill, and the gate opens again."""
    file = memory_stall.file_to_read(tmp_path)
    with memory_limit(memory_stall.LIMIT_BYTES) as group:
        stall = (sys.executable, str(Path(memory_stall.__file__)), str(group), str(file))
        until_it_counts(stall)
        with pressed(tmp_path, STALL_MARKS, group) as host:
            modest = begun((*host.run, *EATER, "16", "1000"))
            greedy = ended((*host.run, *stall), PYTHONPATH=os.pathsep.join(sys.path))
            receipt = receipt_of(greedy)
            assert (receipt["why"], greedy.returncode) == ("GateStopped:memory", 128 + signal.SIGKILL)
            assert {step["reason"] for step in receipt["steps"]} == {"PSIFullHigh"}
            all_well_again(host, modest)


def test_a_job_that_its_own_limit_killed_says_so(tmp_path: Path) -> None:
    """A real OOM kill: the marks are too low to act, and its receipt tells it from the kill of a gate."""
    with memory_limit(LIMIT_BYTES) as group, pressed(tmp_path, BLIND_MARKS, group) as host:
        host.take_in_the_agent()
        greedy = ended((*host.run, *EATER, "1000", "0"))
        receipt = receipt_of(greedy)
        assert greedy.returncode == 128 + signal.SIGKILL
        assert (receipt["why"], receipt["confidence"]) == ("OOMOwnLimit", "low")
        assert receipt["evidence"][0] == "1 killed in our control group"


def until_it_counts(stall: tuple[str, ...]) -> None:
    """Skips the test where such readers make no host wait, as on a file system in memory."""
    before = memory_stall.full_stall_microseconds()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    readers = subprocess.Popen(stall, env=environment, start_new_session=True)
    try:
        eventually(lambda: memory_stall.full_stall_microseconds() > before + 20_000, within_seconds=30)
    except AssertionError:
        pytest.skip("cannot run here: the kernel counts no time in which all work waits for memory")
    finally:
        os.killpg(readers.pid, signal.SIGKILL)
        readers.wait()

"""Real memory pressure on a host that serves models: who streams goes on, who is not asked makes room."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from journeyman_updater.contract import WorkerRecord
from tests.e2e.test_lane_pressure import AVAILABLE_MARKS, EATER, NOWHERE
from tests.e2e.test_on_demand import client_of, phases
from tests.support.agents import AgentProcess, agent
from tests.support.memory_group import memory_limit
from tests.support.proxy_clients import is_whole
from tests.support.waiting import eventually

# One at a time, with those that bring the lane under pressure.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("memory-pressure")]

LIMIT_BYTES = 900 << 20
# Below the mark at which work is killed; without the smaller of the two servers the gate opens again.
LEFT_PERCENT = 20
LONG = 1500
DEADLINE_SECONDS = 120.0
# The cache of the tiny model takes 256 bytes a token.
TABLE = """
[[inference]]
name = "{name}"
model = "{model}"
start = "on_demand"
context_tokens = 50000
slots = {slots}
"""


def server_of(running: AgentProcess, model: str) -> WorkerRecord:
    (found,) = [record for record in running.worker_records() if record.labels.get("model") == model]
    return found


def free_bytes(group: Path) -> int:
    """What the group has left, as the agent counts it: pages of files can be had back."""
    told = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    used = int((group / "memory.usage_in_bytes").read_text()) - int(told["total_inactive_file"])
    return LIMIT_BYTES - used


def test_the_larger_server_streams_on_while_the_idle_one_makes_room(tmp_path: Path, tiny_model: Path) -> None:
    """The proxy's client is seen: by size alone its server would have gone first; its stream is whole."""
    (tmp_path / "token").write_text("none")
    (tmp_path / "node-a").mkdir()
    tables = "".join(
        TABLE.format(name=name, model=tiny_model, slots=slots) for name, slots in (("busy", 24), ("idle", 16))
    )
    (tmp_path / "node-a" / "config.toml").write_text(tables + AVAILABLE_MARKS)
    with (
        memory_limit(LIMIT_BYTES) as group,
        agent(tmp_path, NOWHERE, tmp_path / "token", options={"model_memory_fraction": "1"}) as running,
    ):
        eventually(lambda: running.status()["proxy"]["phase"] == "ready", within_seconds=60)
        eventually(lambda: set(phases(running).values()) == {"asleep"}, within_seconds=60)
        assert running.process is not None
        # What it starts from now on counts.
        (group / "cgroup.procs").write_text(str(running.process.pid))
        idle, busy = client_of(running, "idle"), client_of(running, "busy")

        async def scenario() -> None:
            assert is_whole(await idle.read_all(3))
            stream = await (await busy.begin(LONG)).until_begun()
            server = server_of(running, "busy").worker.pid
            # It stands still in the middle, however fast it is.
            os.kill(server, signal.SIGSTOP)
            try:
                await asyncio.to_thread(press, running, group)
            finally:
                os.kill(server, signal.SIGCONT)
            assert is_whole(await stream.rest())
            assert server_of(running, "busy").worker.pid == server

        asyncio.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))
        interrupted = [
            line for line in running.log_file.read_text().splitlines() if "work_interrupted" in line
        ]
        assert len(interrupted) == 1
        assert "model-idle-" in interrupted[0]
        assert "oom_kill 0" in (group / "memory.oom_control").read_text()
        running.stop()
        running.kill_workers()
        eventually(lambda: not (group / "cgroup.procs").read_text().split(), within_seconds=60)


def press(running: AgentProcess, group: Path) -> None:
    """Takes memory until only so much is left, and returns when the idle server has made room."""
    megabytes = (free_bytes(group) - LIMIT_BYTES * LEFT_PERCENT // 100) >> 20
    assert phases(running) == {"busy": "ready", "idle": "ready"}
    assert megabytes > 0, "the servers alone bring the host under pressure"
    eater = subprocess.Popen(
        (*EATER, str(megabytes), "1000"),
        stdout=subprocess.PIPE,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),  # noqa: PLW1509
    )
    try:
        eventually(lambda: phases(running)["idle"] != "ready", within_seconds=60)
        eventually(lambda: phases(running) == {"busy": "ready", "idle": "asleep"}, within_seconds=60)
    finally:
        eater.kill()
        eater.communicate()

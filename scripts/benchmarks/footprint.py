"""What an idle agent costs: memory, CPU, wake-ups, and requests as the plane counts them.

The agent runs with the default intervals for the figures of a minute.  For its growth it beats twenty
times a second, so that it does an hour's beats (120) many times over.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.figures import Figure
from tests.support.plane import RunningPlane, running_plane

MIB = 1024 * 1024
SETTLE_SECONDS = 5.0
WATCH_SECONDS = 62.0
BUSY_SECONDS = 30.0
BUSY = {"JOURNEYMAN_HEARTBEAT_INTERVAL_SECONDS": "0.05", "JOURNEYMAN_TASK_POLL_SECONDS": "0.05"}


def measure() -> list[Figure]:
    """Takes about a minute and a half."""
    with tempfile.TemporaryDirectory() as folder, running_plane(Path(folder)) as plane:
        with _agent(Path(folder) / "idle", plane, {}) as idle:
            time.sleep(SETTLE_SECONDS)
            before, cpu, wakes = _requests(plane), _cpu(idle), _wakes(idle)
            time.sleep(WATCH_SECONDS)
            requests = {key: value - before.get(key, 0) for key, value in _requests(plane).items()}
            uss = idle.memory_full_info().uss / MIB
            cpu_share = 100 * (_cpu(idle) - cpu) / WATCH_SECONDS
            wake_ups = (_wakes(idle) - wakes) / WATCH_SECONDS
        with _agent(Path(folder) / "busy", plane, BUSY) as busy:
            time.sleep(SETTLE_SECONDS)
            start, beats = busy.memory_full_info().uss, _beats(plane)
            time.sleep(BUSY_SECONDS)
            beaten = _beats(plane) - beats
            growth = (busy.memory_full_info().uss - start) / MIB
    beat_requests = sum(value for key, value in requests.items() if "fleetnodes" in key)
    beats_idle = sum(value for key, value in requests.items() if "fleetnodes" in key and "patch" in key)
    return [
        Figure("USS of an idle agent", round(uss, 1), "MiB", 50),
        Figure(f"growth of USS over {beaten:g} beats", round(growth, 2), "MiB", 1),
        Figure("CPU of an idle agent", round(cpu_share, 3), "% of a core", 0.1),
        Figure("wake-ups", round(wake_ups, 2), "1/s", 1),
        Figure("requests per heartbeat", round(beat_requests / max(beats_idle, 1), 2), "", 1),
    ]


@contextmanager
def _agent(root: Path, plane: RunningPlane, options: dict[str, str]) -> Iterator[psutil.Process]:
    command = [sys.executable, "-m", "journeyman", "run", "--state-root", str(root), "--server", plane.url]
    command += ["--token-file", str(plane.token_file), "--node-name", f"bench-{root.name}"]
    with subprocess.Popen(command, env={**os.environ, **options}, stderr=subprocess.DEVNULL) as process:
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _wakes(process: psutil.Process) -> int:
    return int(process.num_ctx_switches().voluntary)


def _requests(plane: RunningPlane) -> dict[str, float]:
    with plane.client() as client:
        lines = client.get("/metrics").text.splitlines()
    counted = (line.rpartition(" ") for line in lines if line.startswith("journeyman_plane_requests"))
    return {key: float(value) for key, _, value in counted}


def _beats(plane: RunningPlane) -> float:
    counted = _requests(plane).items()
    return sum(value for key, value in counted if "fleetnodes" in key and "patch" in key)

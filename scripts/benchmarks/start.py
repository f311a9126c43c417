"""How long the agent takes from its start to READY, and to its first accepted heartbeat.

READY is what it tells the service manager through NOTIFY_SOCKET.  The same interpreter that does nothing
but import the libraries that the agent imports is run in turn with it: the ratio holds on any machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import model_start
from benchmarks.figures import Figure, median_of
from tests.support.plane import RunningPlane, running_plane

RUNS = 7
LIBRARIES = "import asyncio, httpx, psutil, pydantic_settings, structlog, tenacity"


def measure() -> list[Figure]:
    """Starts the agent `RUNS` times against a plane that runs in this process."""
    ready, beat, libraries = [], [], []
    with tempfile.TemporaryDirectory() as folder, running_plane(Path(folder)) as plane:
        _start(Path(folder) / "warm", plane)
        for number in range(RUNS):
            libraries.append(_import_libraries())
            seconds = _start(Path(folder) / str(number), plane)
            ready.append(seconds[0])
            beat.append(seconds[1])
    return [
        median_of("start to READY", ready, "s", 0.8),
        median_of("start to first beat", beat, "s", 1.0),
        median_of("importing the libraries alone", libraries, "s"),
        median_of("READY / libraries", [a / b for a, b in zip(ready, libraries, strict=True)], "x"),
        *model_start.measure(),
    ]


def _import_libraries() -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", LIBRARIES], check=True)
    return time.monotonic() - began


def _start(root: Path, plane: RunningPlane) -> tuple[float, float]:
    root.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(root / "notify"))
        manager.settimeout(30)
        command = [
            sys.executable,
            "-m",
            "journeyman",
            "run",
            "--state-root",
            str(root),
            "--server",
            plane.url,
        ]
        command += ["--token-file", str(plane.token_file), "--node-name", f"bench-{root.name}"]
        began = time.monotonic()
        with subprocess.Popen(
            command, env={**os.environ, "NOTIFY_SOCKET": str(root / "notify")}, stderr=subprocess.DEVNULL
        ) as agent:
            assert manager.recv(4096).startswith(b"READY=1")
            ready = time.monotonic() - began
            while not (root / "run" / "last-beat").exists():
                time.sleep(0.002)
            beat = time.monotonic() - began
            agent.terminate()
            agent.wait(30)
    return ready, beat

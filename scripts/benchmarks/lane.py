"""What `journeyman lane run` adds to a command on a host that has room for it.

The command is started by itself and through the lane in turn, so that both see the same machine; so is an
interpreter that does nothing, of which the lane needs two: the ratio holds on any machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figures import Figure, median_of
from tests.support.agents import agent

RUNS = 25
# Nobody listens there: the lane needs no control plane.
NOWHERE = "http://127.0.0.1:9"


def measure() -> list[Figure]:
    """Takes some seconds."""
    alone, through, idle = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.write_text("none")
        # Quiet loops: it is the lane that is measured.
        quiet = {"task_poll_seconds": "60", "heartbeat_interval_seconds": "60"}
        with agent(Path(folder), NOWHERE, token, options=quiet) as running:
            running.until_admitting()
            lane = [sys.executable, "-m", "journeyman", "lane", "run"]
            lane += ["--state-root", str(running.root.path), "--", "true"]
            _seconds(lane)
            for _ in range(RUNS):
                alone.append(1000 * _seconds(["true"]))
                through.append(1000 * _seconds(lane))
                idle.append(1000 * _seconds([sys.executable, "-c", "pass"]))
    added = [one - other for one, other in zip(through, alone, strict=True)]
    return [
        median_of("lane run adds to a command", added, "ms", 100),
        median_of("the command alone", alone, "ms"),
        median_of(
            "added / an interpreter that does nothing", [a / b for a, b in zip(added, idle, strict=True)], "x"
        ),
    ]


def _seconds(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, check=True)
    return time.monotonic() - begun

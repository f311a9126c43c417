"""What an agent costs its control plane: writes, requests and bytes, as the plane counts them.

Thirty times as fast as by default, so that a minute of the clock on the wall is half an hour of a node.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure
from journeyman.model.resources import AGENTIC_TASKS
from tests.support.agents import agent
from tests.support.plane import FOREMAN, RunningPlane, agentic_task, running_plane
from tests.support.waiting import eventually

FASTER = 30
SETTLE_SECONDS = 5.0
WATCH_SECONDS = 40.0
TASKS = 20
NAMESPACE = f"{FOREMAN}/namespaces/default/agentictasks"
# The intervals of the defaults, divided.
AGENT = {
    "heartbeat_interval_seconds": str(30 / FASTER),
    "task_poll_seconds": str(5 / FASTER),
    "watch_seconds": str(300 / FASTER),
    "watch_stall_seconds": str(90 / FASTER),
}
BOOKMARK_SECONDS = 30 / FASTER
WRITE = re.compile('verb="(create|patch|update|delete)"')


def measure() -> list[Figure]:
    """Takes about a minute."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running_plane(Path(folder), bookmark_seconds=BOOKMARK_SECONDS) as plane,
        agent(Path(folder), plane.url, plane.token_file, options=AGENT) as node,
    ):
        node.until_admitting()
        time.sleep(SETTLE_SECONDS)
        before = _counted(plane)
        time.sleep(WATCH_SECONDS)
        idle = _counted(plane) - before
        before = _counted(plane)
        _run_tasks(plane)
        busy = _counted(plane) - before
    minutes = WATCH_SECONDS * FASTER / 60
    writes = sum(count for what, count in idle.items() if WRITE.search(what))
    requests = sum(count for what, count in idle.items() if "requests_total" in what)
    sent = sum(count for what, count in idle.items() if "bytes_total" in what)
    # The tasks themselves are made by this script.
    of_tasks = {
        what: count for what, count in busy.items() if "agentictasks" in what and "create" not in what
    }
    task_writes = sum(count for what, count in of_tasks.items() if WRITE.search(what))
    return [
        Figure("writes per idle agent and minute", round(writes / minutes, 2), "", 2.3),
        Figure("requests per idle agent and minute", round(requests / minutes, 2), "", 2.6),
        Figure("bytes per idle agent and minute", round(sent / minutes), "B", 8000),
        Figure("writes per task", round(task_writes / TASKS, 2), "", 2),
        Figure("requests per task", round(sum(of_tasks.values()) / TASKS, 2), "", 3.2),
    ]


def _run_tasks(plane: RunningPlane) -> None:
    """Lets the agent take tasks that it ends at once, as it serves no model."""
    with plane.client() as client:
        for number in range(TASKS):
            client.post(NAMESPACE, json=agentic_task(f"task-{number}")).raise_for_status()
    eventually(partial(_all_ended, plane), within_seconds=180)


def _all_ended(plane: RunningPlane) -> bool:
    tasks = plane.store.select(AGENTIC_TASKS.group, AGENTIC_TASKS.plural)[0]
    return all((task.get("status") or {}).get("phase") in {"Succeeded", "Failed"} for task in tasks)


def _counted(plane: RunningPlane) -> Counter[str]:
    """The counters of the plane by name and labels."""
    with plane.client() as client:
        lines = client.get("/metrics").text.splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return Counter({what: int(count) for what, _, count in pairs if "_total" in what})

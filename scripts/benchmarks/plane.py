"""What a fleet costs its plane: the time of a heartbeat's PATCH, and the plane's CPU for each node.

The plane is a process of its own, with its reconcilers.  Each node beats twice a minute, and has a connection
of its own that watches tasks, as its agent would.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.figures import Figure
from tests.support.plane import FOREMAN, MERGE_PATCH, TRUSTS_NOBODY, PlaneProcess, fleet_node, spawn_plane

SMALL, LARGE = 10, 1000
BEAT_SECONDS = 30.0
SECONDS = 30.0
NODES = f"{FOREMAN}/fleetnodes"
TASKS = f"{FOREMAN}/namespaces/default/agentictasks"


@dataclass(frozen=True)
class Cost:
    """What a fleet of one size cost.

    Attributes:
        p50_ms: of a PATCH, as its client sees it.
        p99_ms: the same.
        cpu_ms: of the plane, for each node and minute.
        memory_mib: unique to the plane at the end.
    """

    p50_ms: float
    p99_ms: float
    cpu_ms: float
    memory_mib: float


def measure() -> list[Figure]:
    """Takes about a minute and a half."""
    small, large = (_cost_of(nodes) for nodes in (SMALL, LARGE))
    growth = round(large.cpu_ms / small.cpu_ms, 2)
    return [
        Figure(f"PATCH of a heartbeat, p99, {LARGE} nodes", large.p99_ms, "ms", 50),
        Figure(f"the same, p50, {LARGE} nodes", large.p50_ms, "ms"),
        Figure(f"the same, p50, {SMALL} nodes", small.p50_ms, "ms"),
        Figure(f"CPU for each node and minute, {LARGE} nodes", large.cpu_ms, "ms"),
        Figure(f"the same, {LARGE} to {SMALL} nodes", growth, "x", 1.2),
        Figure(f"memory of the plane, {LARGE} nodes", large.memory_mib, "MiB"),
    ]


def _cost_of(nodes: int) -> Cost:
    silent = subprocess.DEVNULL
    with tempfile.TemporaryDirectory() as folder, spawn_plane(Path(folder), log=silent) as plane:
        return asyncio.run(_drive(plane, [f"node-{number}" for number in range(nodes)]))


async def _drive(plane: PlaneProcess, names: list[str]) -> Cost:
    assert plane.process is not None
    process = psutil.Process(plane.process.pid)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    headers = {"Authorization": f"Bearer {plane.token}"}
    async with (
        httpx.AsyncClient(
            base_url=plane.url, headers=headers, verify=TRUSTS_NOBODY, limits=limits, timeout=60
        ) as client,
        asyncio.TaskGroup() as watches,
    ):
        for name in names:
            (await client.post(NODES, json=fleet_node(name))).raise_for_status()
            await _beat(client, name)
        connected = [asyncio.Event() for _ in names]
        watching = [watches.create_task(_watch(client, event)) for event in connected]
        for event in connected:
            await event.wait()
        cpu = _cpu_seconds(process)
        milliseconds = sorted(await _beats(client, names))
        spent = 1000 * (_cpu_seconds(process) - cpu) / len(names) * 60 / SECONDS
        memory = process.memory_full_info().uss / 2**20
        for watch in watching:
            watch.cancel()
    return Cost(
        p50_ms=round(milliseconds[len(milliseconds) // 2], 1),
        p99_ms=round(milliseconds[int(len(milliseconds) * 0.99)], 1),
        cpu_ms=round(spent, 2),
        memory_mib=round(memory, 1),
    )


async def _beats(client: httpx.AsyncClient, names: list[str]) -> list[float]:
    """At a fixed pace: one that is late does not make the next one wait."""
    began, pause = time.monotonic(), BEAT_SECONDS / len(names)
    async with asyncio.TaskGroup() as group:
        beats = []
        for number in range(int(SECONDS / pause)):
            await asyncio.sleep(max(0.0, began + number * pause - time.monotonic()))
            beats.append(group.create_task(_beat(client, names[number % len(names)])))
        await asyncio.sleep(max(0.0, began + SECONDS - time.monotonic()))
    return [beat.result() for beat in beats]


async def _beat(client: httpx.AsyncClient, name: str) -> float:
    """One heartbeat; returns its milliseconds."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status: dict[str, Any] = {"phase": "Ready", "lastHeartbeatTime": now, "agentVersion": "0.1.0"}
    began = time.perf_counter()
    answer = await client.patch(f"{NODES}/{name}/status", json={"status": status}, headers=MERGE_PATCH)
    answer.raise_for_status()
    return 1000 * (time.perf_counter() - began)


async def _watch(client: httpx.AsyncClient, connected: asyncio.Event) -> None:
    query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
    with contextlib.suppress(asyncio.CancelledError):
        async with client.stream("GET", TASKS, params=query) as stream:
            connected.set()
            async for _ in stream.aiter_raw():
                pass


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)

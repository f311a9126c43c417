"""What the proxy costs, against the same model server asked directly, in turn in one run.

The default model is the smallest that anybody would serve, and so the one at whose speed a proxy costs
most of its tokens/s.  The time to the first token is measured with the tiny random model: that of a real one
varies by more than the proxy adds, and most with many clients.  They ask at random moments, four times a
second each, as nobody's time can be told on a host without a free moment.  How soon a server stops for
clients that vanish is measured with the tiny model, too, which has fifty slots.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.figures import Figure, median_of
from journeyman.model.model_file import DEFAULT_MODEL
from tests.support.agents import AgentProcess, agent
from tests.support.proxy_clients import StreamingClient
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.waiting import eventually

NOWHERE = "http://127.0.0.1:9"
FIRST_TOKENS, BLOCKS, TOKENS = 320, 6, 32
RATE_BLOCKS = 12
LONGEST_PAUSE_SECONDS = 0.5
MANY = 16
CLIENTS, VANISHING, LONG = 50, 20, 1900
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Bench:
    """Both ways to one model, and the process in between."""

    direct: StreamingClient
    proxied: StreamingClient
    proxy: psutil.Process

    @property
    def ways(self) -> tuple[StreamingClient, StreamingClient]:
        return self.direct, self.proxied


def measure() -> list[Figure]:
    """Takes about three minutes."""
    with tempfile.TemporaryDirectory() as folder:
        with _bench(Path(folder), DEFAULT_MODEL, DEFAULT_MODEL, MANY) as bench:
            figures = asyncio.run(_costs(bench))
        tiny = Path(folder) / "tiny.gguf"
        write_tiny_gguf(tiny)
        with _bench(Path(folder), str(tiny), "tiny", CLIENTS) as bench:
            figures += asyncio.run(_first_tokens(bench))
            figures += asyncio.run(_cancellations(bench))
    return figures


@contextmanager
def _bench(folder: Path, wanted: str, model: str, slots: int) -> Iterator[Bench]:
    token = folder / "token"
    token.write_text("none")
    quiet = {"task_poll_seconds": "60", "heartbeat_interval_seconds": "60"}
    # An agent that measures its models gives way to clients of the proxy alone: it sees no others.
    quiet["model_speed_idle_seconds"] = "3600"
    sizes = {"model_parallel_slots": str(slots), "model_context_tokens": "2048"}
    with agent(folder, NOWHERE, token, name=model, models=(wanted,), options={**quiet, **sizes}) as running:
        running.until_serving()
        eventually(lambda: running.status()["proxy"]["phase"] == "ready", within_seconds=60)
        yield _ways(running, model)


def _ways(running: AgentProcess, model: str) -> Bench:
    records = {record.kind: record for record in running.worker_records()}
    files = running.root.workers / records["model-server"].worker_id / "files"
    direct = json.loads((files / "endpoint.json").read_bytes())["base_url"]
    shown = running.status()["proxy"]
    return Bench(
        StreamingClient(direct, (files / "api-key").read_text().strip(), model),
        StreamingClient(shown["baseUrl"], Path(shown["keyFile"]).read_text().strip(), model),
        psutil.Process(records["proxy"].worker.pid),
    )


async def _costs(bench: Bench) -> list[Figure]:
    for way in bench.ways:
        await _tokens_per_second(way, MANY)
    figures = []
    for clients in (1, MANY):
        used = sum(bench.proxy.cpu_times()[:2])
        rates: tuple[list[float], list[float]] = ([], [])
        for turn in range(RATE_BLOCKS):
            both = list(zip(bench.ways, rates, strict=True))
            # Each way is the first one as often as the other: what the host does besides has its rhythm.
            for way, found in both if turn % 2 else both[::-1]:
                found.append(await _tokens_per_second(way, clients))
        used = sum(bench.proxy.cpu_times()[:2]) - used
        lost = [100 * (1 - through / direct) for direct, through in zip(*rates, strict=True)]
        figures += [
            median_of(f"tokens/s, {clients} clients: lost", lost, "%", 2),
            median_of(f"tokens/s, {clients} clients: direct", rates[0], "1/s"),
            Figure(
                f"CPU of the proxy a token, {clients} clients",
                round(1e6 * used / (RATE_BLOCKS * clients * TOKENS)),
                "us",
            ),
        ]
    return figures


async def _first_tokens(bench: Bench) -> list[Figure]:
    figures = []
    for clients in (1, MANY):
        turns = FIRST_TOKENS // clients
        found = await asyncio.gather(
            *(_first_token_overheads(bench, turns, number) for number in range(clients))
        )
        added = [difference for differences in found for difference in differences]
        figures.append(median_of(f"first token, {clients} clients: added", added, "ms", 2))
    return figures


async def _first_token_overheads(bench: Bench, turns: int, number: int) -> list[float]:
    """In milliseconds: the client of that number asks both ways in turn."""
    chance, differences = random.Random(number), []
    for turn in range(turns):
        ways = bench.ways if turn % 2 else bench.ways[::-1]
        seconds = {}
        for way in ways:
            await asyncio.sleep(chance.uniform(0, LONGEST_PAUSE_SECONDS))
            seconds[way] = await _first_token_seconds(way)
        differences.append(1000 * (seconds[bench.proxied] - seconds[bench.direct]))
    return differences


async def _first_token_seconds(way: StreamingClient) -> float:
    begun = time.perf_counter()
    stream = await (await way.begin(2)).until_begun()
    seconds = time.perf_counter() - begun
    await stream.rest()
    return seconds


async def _tokens_per_second(way: StreamingClient, clients: int) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*(way.read_all(TOKENS) for _ in range(clients)))
    return clients * TOKENS / (time.perf_counter() - begun)


async def _cancellations(bench: Bench) -> list[Figure]:
    """How long the server goes on for clients that have vanished, among others that stay."""
    before = bench.proxy.memory_info().rss
    waits = []
    for _ in range(BLOCKS):
        streams = await asyncio.gather(*(bench.proxied.begin(LONG) for _ in range(CLIENTS)))
        await asyncio.gather(*(stream.until_begun() for stream in streams))
        staying = [asyncio.create_task(stream.rest()) for stream in streams[VANISHING:]]
        begun = time.perf_counter()
        for stream in streams[:VANISHING]:
            stream.vanish()
        await _until_generating(bench.direct, CLIENTS - VANISHING)
        waits.append(1000 * (time.perf_counter() - begun))
        for task, stream in zip(staying, streams[VANISHING:], strict=True):
            task.cancel()
            stream.vanish()
        await _until_generating(bench.direct, 0)
    memory = bench.proxy.memory_info().rss
    return [
        median_of("20 of 50 vanish: server stops within", waits, "ms", 1000),
        Figure("memory of the proxy, with 50 streams", round(memory / 2**20, 1), "MiB"),
        Figure("growth of that memory", round((memory - before) / 2**20, 1), "MiB"),
    ]


async def _until_generating(server: StreamingClient, slots: int) -> None:
    def looks() -> None:
        eventually(lambda: _generating(server) <= slots, within_seconds=60, every_seconds=LOOK_SECONDS)

    await asyncio.to_thread(looks)


def _generating(server: StreamingClient) -> int:
    url = server.base_url.removesuffix("/v1") + "/slots"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {server.key}"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
        return sum(slot["is_processing"] for slot in json.loads(reply.read()))

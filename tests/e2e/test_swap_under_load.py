"""Two models, memory for one, and many clients: a real agent, proxy and model, under two names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_on_demand import client_of, phases, room_for_one, serving, until_asleep
from tests.support.agents import AgentProcess
from tests.support.proxy_clients import is_whole

pytestmark = pytest.mark.slow

NAMES = ("one", "other")
CLIENTS, VANISHING = 50, 20
LONG, SHORT = 400, 40
DEADLINE_SECONDS = 240.0
MORE_MEMORY = 48 * 1024 * 1024
# A small context for each of many slots, as all clients shall stream at the same time.
TABLE = """
[[inference]]
name = "{name}"
model = "{model}"
start = "on_demand"
context_tokens = 512
slots = {slots}
"""


def tables(model: Path, slots: int) -> str:
    return "".join(TABLE.format(name=name, model=model, slots=slots) for name in NAMES)


def rss_of(running: AgentProcess, kind: str) -> int:
    """Resident memory of all workers of that kind."""
    pids = [record.worker.pid for record in running.worker_records() if record.kind == kind]
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))


def test_a_swap_under_load_loses_no_stream(tmp_path: Path, real_model: Path) -> None:
    """Of 50 streams 20 vanish and 30 are whole, and then the model that another client waits for answers."""
    fraction = room_for_one(real_model, context_tokens=512, slots=CLIENTS)
    with serving(tmp_path, tables(real_model, CLIENTS), model_memory_fraction=str(fraction)) as running:
        until_asleep(running, *NAMES)
        client, other = client_of(running, "one"), client_of(running, "other")

        async def scenario() -> None:
            assert is_whole(await client.read_all(2))
            proxy, server = rss_of(running, "proxy"), rss_of(running, "model-server")
            lengths = [LONG] * VANISHING + [SHORT] * (CLIENTS - VANISHING)
            streams = await asyncio.gather(*(client.begin(length) for length in lengths))
            await asyncio.gather(*(stream.until_begun() for stream in streams))
            swap = asyncio.create_task(other.read_all(3))
            replies = [asyncio.create_task(stream.rest()) for stream in streams[VANISHING:]]
            for stream in streams[:VANISHING]:
                stream.vanish()
            whole = await asyncio.gather(*replies)
            assert all(map(is_whole, whole))
            assert is_whole(await swap)
            assert phases(running) == {"one": "asleep", "other": "ready"}
            assert rss_of(running, "proxy") < proxy + MORE_MEMORY
            assert rss_of(running, "model-server") < server + MORE_MEMORY

        play(scenario)


def test_clients_that_never_pause_do_not_keep_another_model_out(tmp_path: Path, real_model: Path) -> None:
    """Two that stream by turns leave no gap; the other model answers all the same, and no reply is cut."""
    fraction = room_for_one(real_model, context_tokens=512, slots=2)
    options = {"model_memory_fraction": str(fraction), "model_turn_seconds": "2"}
    with serving(tmp_path, tables(real_model, 2), **options) as running:
        until_asleep(running, *NAMES)
        client, other = client_of(running, "one"), client_of(running, "other")

        async def scenario() -> None:
            stopped = asyncio.Event()

            async def steady() -> int:
                answered = 0
                while not stopped.is_set():
                    assert is_whole(await client.read_all(SHORT))
                    answered += 1
                return answered

            assert is_whole(await client.read_all(2))
            clients = [asyncio.create_task(steady()) for _ in range(2)]
            for _ in range(2):
                assert is_whole(await other.read_all(3))
            stopped.set()
            # Those that were held for their own turn meanwhile have been answered, too.
            assert min(await asyncio.gather(*clients)) > 0

        play(scenario)

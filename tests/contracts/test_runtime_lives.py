"""An agent adopts, exchanges, unloads and fetches the servers of every runtime alike, as real programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.ports import Endpoint
from tests.simulator.release_server import ReleaseServer
from tests.support.model_hub import Repository
from tests.support.runtimes import RUNTIMES, Installed, installed_runtime
from tests.support.served_host import ServedHost

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 150

Scenario = Callable[[ServedHost], Coroutine[Any, Any, None]]


@pytest.fixture(params=RUNTIMES)
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed_runtime(request.param, tmp_path_factory)


def play(root: Path, scenario: Scenario, *, hub_url: str = "") -> None:
    """Runs a scenario, bounded, and leaves no process behind."""

    async def bounded() -> None:
        host = ServedHost(root, hub_url=hub_url)
        try:
            await asyncio.wait_for(scenario(host), DEADLINE_SECONDS)
        finally:
            await host.stop_workers()

    asyncio.run(bounded())


async def stream(endpoint: Endpoint, begun: asyncio.Event, tokens: int) -> str:
    """All of an answer; `begun` is set with its first word."""
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": tokens,
        "stream": True,
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {endpoint.api_key.decode()}"}
    told = ""
    async with (
        httpx.AsyncClient(timeout=60, trust_env=False) as client,
        client.stream("POST", f"{endpoint.base_url}/chat/completions", json=body, headers=headers) as reply,
    ):
        async for text in reply.aiter_text():
            told += text
            begun.set()
    return told


def test_a_new_agent_takes_its_server_over(installed: Installed, tmp_path: Path) -> None:
    """The second agent answers with the process of the first, by the same port and key."""

    async def scenario(host: ServedHost) -> None:
        async with host.agent(**installed.table()) as agent:
            first = await agent.ready()
        (record,) = host.servers()
        async with host.agent(**installed.table()) as agent:
            assert await agent.ready() == first
        assert host.servers() == [record]

    play(tmp_path, scenario)


def test_other_options_are_another_server_and_cut_no_stream(installed: Installed, tmp_path: Path) -> None:
    """The old one finishes its answer before the new one is loaded, so there are never two in memory."""

    async def scenario(host: ServedHost) -> None:
        async with host.agent(**installed.table()) as agent:
            endpoint = await agent.ready()
        (old,) = host.servers()
        begun = asyncio.Event()
        answer = asyncio.create_task(stream(installed.named(endpoint), begun, 300))
        await begun.wait()
        async with host.agent(**installed.table(), **installed.another_option) as agent:
            assert await agent.ready() != endpoint
            assert (await answer).rstrip().endswith("data: [DONE]")
        (new,) = host.servers()
        assert new.worker_id != old.worker_id

    play(tmp_path, scenario)


def test_who_is_not_used_is_unloaded(installed: Installed, tmp_path: Path) -> None:
    """After its idle time no process is left, and it says that the next request starts it."""

    async def scenario(host: ServedHost) -> None:
        async with host.agent(**installed.table(), start="always", idle_unload_seconds=0.5) as agent:
            await agent.ready()
            shown = await agent.until(lambda shown: shown["phase"] == "asleep")
            assert "next request" in shown["reason"]
            assert host.servers() == []

    play(tmp_path, scenario)


def test_a_folder_of_a_hub_is_fetched_and_served(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`hf://OWNER/REPO/` is all that has to be said; the second agent fetches nothing."""
    installed = installed_runtime("mlx", tmp_path_factory)
    files = {path.name: path.read_bytes() for path in installed.model.iterdir()}
    with ReleaseServer() as server:
        Repository(server, "mlx-community/tiny", files).publish()

        async def scenario(host: ServedHost) -> None:
            table = {**installed.table(), "model": "hf://mlx-community/tiny/", "name": None}
            async with host.agent(**table) as agent:
                endpoint = await agent.ready()
                shown = await agent.until(lambda shown: shown["phase"] == "ready")
                assert (shown["name"], shown["contextTokens"]) == ("tiny", 512)
            asked = len(server.requested)
            async with host.agent(**table) as agent:
                assert await agent.ready() == endpoint
            assert len(server.requested) == asked

        play(tmp_path, scenario, hub_url=server.url(""))


@pytest.mark.parametrize("name", ["native", "mlx"])
def test_the_wrong_form_is_told_before_anything_is_started(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A folder for llama.cpp, or a GGUF file for MLX, is one clear reason and no process."""
    other = installed_runtime("mlx" if name == "native" else "native", tmp_path_factory)

    async def scenario(host: ServedHost) -> None:
        async with host.agent(model=str(other.model), runtime=name) as agent:
            shown = await agent.until(lambda shown: shown["phase"] == "failed")
            assert shown["failure"] == "WrongRuntime"
            assert f"runtime {name} cannot serve" in shown["reason"]
        assert host.workers.known() == []

    play(tmp_path, scenario)

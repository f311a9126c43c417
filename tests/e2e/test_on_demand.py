"""A model that is there only while somebody asks for it: a real agent, a real proxy, a real model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman.adapters.host_probe import PsutilHostProbe
from journeyman.adapters.model_reading import files_of, header_of
from journeyman.adapters.model_room import load_of
from journeyman.core.model_facts import facts_of
from journeyman.core.model_memory import estimate
from journeyman.core.server_config import ServerConfig
from tests.support.agents import ROOMY, AgentProcess, agent
from tests.support.proxy_clients import StreamingClient, is_whole
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9"
DEADLINE_SECONDS = 120.0
SHORT = 5
TABLE = """
[[inference]]
name = "{name}"
model = "{model}"
start = "on_demand"
context_tokens = 2048
slots = 1
idle_unload_seconds = {idle_seconds}
"""


@contextmanager
def serving(folder: Path, tables: str, **options: str) -> Iterator[AgentProcess]:
    """An agent whose proxy listens; none of its models has been asked for."""
    (folder / "token").write_text("none")
    (folder / "node-a").mkdir()
    (folder / "node-a" / "config.toml").write_text(ROOMY + tables)
    with agent(folder, NOWHERE, folder / "token", options=options) as running:
        eventually(lambda: running.status()["proxy"]["phase"] == "ready", within_seconds=60)
        yield running


def phases(running: AgentProcess) -> dict[str, str]:
    return {model["name"]: model["phase"] for model in running.status()["models"]}


def until_asleep(running: AgentProcess, *names: str) -> None:
    """Returns once these models sleep, and no other ones are there."""
    eventually(lambda: phases(running) == dict.fromkeys(names, "asleep"), within_seconds=60)


def servers(running: AgentProcess) -> list[int]:
    return [record.worker.pid for record in running.worker_records() if record.kind == "model-server"]


def client_of(running: AgentProcess, model: str) -> StreamingClient:
    proxy = running.status()["proxy"]
    return StreamingClient(proxy["baseUrl"], Path(proxy["keyFile"]).read_text().strip(), model)


def ask(client: StreamingClient, tokens: int) -> bytes:
    """One whole answer."""
    return asyncio.run(asyncio.wait_for(client.read_all(tokens), DEADLINE_SECONDS))


def test_a_model_comes_when_it_is_asked_and_goes_when_it_is_not(tmp_path: Path, tiny_model: Path) -> None:
    """Its first request starts it, its idle time ends it, and the next one is answered as the first."""
    table = TABLE.format(name="tiny", model=tiny_model, idle_seconds=1)
    with serving(tmp_path, table) as running:
        until_asleep(running, "tiny")
        assert servers(running) == []
        client = client_of(running, "tiny")
        assert is_whole(ask(client, SHORT))
        until_asleep(running, "tiny")
        assert servers(running) == []
        assert is_whole(ask(client, SHORT))
        (model,) = running.status()["models"]
        assert (model["restarts"], model["failure"]) == (0, "")


def test_models_take_turns_where_memory_is_for_one(tmp_path: Path, tiny_model: Path) -> None:
    """Each is answered when it is asked for, although neither has an idle time, and one runs at a time."""
    names = ("one", "other")
    tables = "".join(TABLE.format(name=name, model=tiny_model, idle_seconds=0) for name in names)
    with serving(tmp_path, tables, model_memory_fraction=str(room_for_one(tiny_model))) as running:
        until_asleep(running, *names)
        for asked, asleep in (names, names[::-1], names):
            assert is_whole(ask(client_of(running, asked), SHORT))
            assert phases(running) == {asked: "ready", asleep: "asleep"}
            assert len(servers(running)) == 1


def room_for_one(model: Path, *, context_tokens: int = 2048, slots: int = 1) -> float:
    """The share of this host's memory that holds one server of that model and not two."""
    load = load_of(ServerConfig("m", str(model), "", context_tokens=context_tokens, parallel=slots))
    need = estimate(facts_of([header_of(path) for path in files_of(model)]), load).total_bytes
    return 1.5 * need / PsutilHostProbe(probe_timeout_seconds=10).memory().total_bytes

"""One endpoint for the models of a host: real agents, a real model server, many clients."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from journeyman.core.proxy.routes import Route, RouteState, routes_to_json
from journeyman_updater.contract import WorkerRecord
from tests.support.agents import AgentProcess, agent
from tests.support.proxy_clients import StreamingClient, is_whole
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

# Nobody listens there: serving needs no control plane.
NOWHERE = "http://127.0.0.1:9"
DEADLINE_SECONDS = 120.0
SLOTS, CLIENTS, VANISHING = 50, 50, 20
# A tiny model says a few thousand tokens a second to all clients together, so these streams outlast a test.
# Long enough to be in the middle of when something happens.
VERY_LONG, LONG, SHORT = 1900, 400, 60
MORE_MEMORY = 48 * 1024 * 1024
MANY_SLOTS = {
    "model_parallel_slots": str(SLOTS),
    "model_context_tokens": "2048",
    "model_drain_seconds": "100",
}


@contextmanager
def serving(folder: Path, model: Path, **options: str) -> Iterator[AgentProcess]:
    """An agent with that model behind its endpoint."""
    token = folder / "token"
    token.write_text("none")
    with agent(folder, NOWHERE, token, models=(str(model),), options=options) as running:
        yield until_reachable(running)


def until_reachable(running: AgentProcess) -> AgentProcess:
    """Returns once the model and its endpoint are ready."""
    running.until_serving()
    eventually(lambda: running.status()["proxy"]["phase"] == "ready", within_seconds=60)
    return running


def client_of(running: AgentProcess) -> StreamingClient:
    shown = running.status()["proxy"]
    return StreamingClient(shown["baseUrl"], Path(shown["keyFile"]).read_text().strip())


def record_of(running: AgentProcess, kind: str) -> WorkerRecord:
    (record,) = [record for record in running.worker_records() if record.kind == kind]
    return record


def ask_server(running: AgentProcess, record: WorkerRecord, path: str) -> Any:
    """Asks the model server itself, past the proxy."""
    files = running.root.workers / record.worker_id / "files"
    url = json.loads((files / "endpoint.json").read_bytes())["base_url"].removesuffix("/v1")
    headers = {"Authorization": f"Bearer {(files / 'api-key').read_text().strip()}"}
    with urllib.request.urlopen(urllib.request.Request(url + path, headers=headers), timeout=30) as reply:
        return reply.read()


def generating(running: AgentProcess, record: WorkerRecord) -> int:
    """How many slots of the server work, as it says itself."""
    return sum(slot["is_processing"] for slot in json.loads(ask_server(running, record, "/slots")))


def tokens_of(running: AgentProcess, record: WorkerRecord) -> float:
    """How many tokens the server has generated for requests that have ended."""
    lines = ask_server(running, record, "/metrics").decode().splitlines()
    name = "llamacpp:tokens_predicted_total "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_SECONDS))


def test_vanished_clients_cost_nothing_and_the_others_are_served(tmp_path: Path, tiny_model: Path) -> None:
    """Of 50 streams 20 vanish: the server stops generating for these, 30 are whole, memory stays flat."""
    with serving(tmp_path, tiny_model, **MANY_SLOTS) as running:
        server, proxy = record_of(running, "model-server"), record_of(running, "proxy")
        client = client_of(running)

        async def scenario() -> None:
            await asyncio.gather(*(client.read_all(3) for _ in range(CLIENTS)))
            before, memory = tokens_of(running, server), psutil.Process(proxy.worker.pid).memory_info().rss
            streams = await asyncio.gather(*(client.begin(VERY_LONG) for _ in range(VANISHING)))
            await asyncio.gather(*(stream.until_begun() for stream in streams))
            staying = [asyncio.create_task(client.read_all(SHORT)) for _ in range(CLIENTS - VANISHING)]
            for stream in streams:
                stream.vanish()
            replies = await asyncio.gather(*staying)
            assert all(map(is_whole, replies))
            await asyncio.to_thread(eventually, lambda: generating(running, server) == 0)
            # Had it gone on for those that vanished, it would have said all of this.
            said = tokens_of(running, server) - before
            assert said < len(staying) * SHORT + VANISHING * VERY_LONG / 2
            assert psutil.Process(proxy.worker.pid).memory_info().rss < memory + MORE_MEMORY

        play(scenario)


def test_a_swap_under_load_loses_no_stream(tmp_path: Path, tiny_model: Path) -> None:
    """The old server finishes what it has, and who asks meanwhile is held for the new one."""
    with serving(tmp_path, tiny_model, **MANY_SLOTS) as running:
        old, client = record_of(running, "model-server"), client_of(running)

        async def scenario() -> None:
            lengths = [LONG] + (CLIENTS - 1) * [SHORT]
            streams = await asyncio.gather(*(client.begin(length) for length in lengths))
            await asyncio.gather(*(stream.until_begun() for stream in streams))
            # It stands still in the middle until it is asked to leave, however slowly the agent starts.
            os.kill(old.worker.pid, signal.SIGSTOP)
            replies = [asyncio.create_task(stream.rest()) for stream in streams]
            running.options["model_context_tokens"] = "1024"
            await asyncio.to_thread(running.stop)
            await asyncio.to_thread(running.start)
            held = [asyncio.create_task(client.read_all(3)) for _ in range(10)]
            assert all(map(is_whole, await asyncio.gather(*replies)))
            assert all(map(is_whole, await asyncio.gather(*held)))

        play(scenario)
        until_reachable(running)
        assert not old.worker.is_running()
        assert record_of(running, "model-server").nonce != old.nonce


def test_streams_and_address_survive_the_agent(tmp_path: Path, tiny_model: Path) -> None:
    """`kill -9` of the agent in a stream: it goes on, new ones are served, and all is adopted."""
    with serving(tmp_path, tiny_model, model_parallel_slots="2") as running:
        proxy, client = record_of(running, "proxy"), client_of(running)

        async def scenario() -> None:
            stream = await (await client.begin(LONG)).until_begun()
            running.kill()
            assert is_whole(await client.read_all(3))
            await asyncio.to_thread(running.start)
            # Before the server has proven itself to this agent, too.
            assert is_whole(await client.read_all(3))
            assert is_whole(await stream.rest())

        play(scenario)
        until_reachable(running)
        assert client_of(running) == client
        assert record_of(running, "proxy").nonce == proxy.nonce


def test_another_proxy_takes_over_the_address(tmp_path: Path, tiny_model: Path) -> None:
    """With other settings a new proxy listens where the old one did, which still ends its streams."""
    with serving(tmp_path, tiny_model, model_parallel_slots="2") as running:
        proxy, client = record_of(running, "proxy"), client_of(running)

        async def scenario() -> None:
            stream = await (await client.begin(LONG)).until_begun()
            running.options["proxy_hold_seconds"] = "60"
            await asyncio.to_thread(running.stop)
            await asyncio.to_thread(lambda: until_reachable(running.start()))
            assert client_of(running) == client
            assert is_whole(await client.read_all(3))
            assert is_whole(await stream.rest())

        play(scenario)
        eventually(lambda: not proxy.worker.is_running())
        eventually(lambda: record_of(running, "proxy").nonce != proxy.nonce)


def test_a_killed_proxy_comes_back_at_its_address_and_its_key_is_seen_nowhere(
    tmp_path: Path, tiny_model: Path
) -> None:
    """Nobody has to be told anything new; arguments, environment, logs and status are free of the key."""
    with serving(tmp_path, tiny_model) as running:
        proxy, client = record_of(running, "proxy"), client_of(running)
        play(lambda: _asked(client))
        assert client.key.encode() not in _seen(running, proxy)
        assert (running.root.proxy_key_file.stat().st_mode & 0o777) == 0o600
        os.kill(proxy.worker.pid, signal.SIGKILL)
        eventually(lambda: running.status()["proxy"]["phase"] == "backoff")
        until_reachable(running)
        assert client_of(running) == client
        play(lambda: _asked(client))


async def _asked(client: StreamingClient) -> None:
    assert is_whole(await client.read_all(3))


def _seen(running: AgentProcess, proxy: WorkerRecord) -> bytes:
    """All that anybody may see of a proxy."""
    process, folder = Path(f"/proc/{proxy.worker.pid}"), running.root.workers / proxy.worker_id
    files = [process / "cmdline", process / "environ"]
    files += [folder / name for name in ("spec.json", "record.json", "stdout.log", "stderr.log")]
    said = json.dumps(running.status()) + running.log()
    return said.encode() + b"".join(path.read_bytes() for path in files)


def start_by_hand(folder: Path, *options: str) -> subprocess.Popen[str]:
    (folder / "key").write_text("k\n")
    (folder / "routes.json").write_bytes(routes_to_json([Route("tiny", RouteState.STARTING)]))
    command = [sys.executable, "-m", "journeyman", "proxy", "--routes", str(folder / "routes.json")]
    command += ["--key-file", str(folder / "key"), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_people_can_run_it_by_hand(tmp_path: Path) -> None:
    """`journeyman proxy` says where it listens, answers, and ends with 0 on Ctrl-C."""
    process = start_by_hand(tmp_path, "--port", "0")
    assert process.stdout is not None
    url = process.stdout.readline().split()[-1]
    request = urllib.request.Request(f"{url}/models", headers={"X-Api-Key": "k"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        assert json.loads(reply.read())["data"][0]["id"] == "tiny"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0


def test_a_port_that_is_taken_is_told_with_its_owner(tmp_path: Path) -> None:
    """Exit code 70, and one line that names the program and its pid."""
    first = start_by_hand(tmp_path, "--port", "0")
    assert first.stdout is not None
    port = first.stdout.readline().split()[-1].removesuffix("/v1").rpartition(":")[2]
    second = start_by_hand(tmp_path, "--port", port)
    told = second.communicate(timeout=60)[1]
    assert second.returncode == 70
    assert f"port {port} is taken by " in told
    assert f"(pid {first.pid})" in told
    first.terminate()
    first.communicate(timeout=30)


@pytest.mark.parametrize(
    ("routes", "said"),
    [(None, "cannot be read"), ("{", "holds no routes"), ('{"format":1,"routes":[{}]}', "without `model`")],
)
def test_files_that_cannot_be_used_are_told(tmp_path: Path, routes: str | None, said: str) -> None:
    """Exit code 78, one line, and what to do."""
    (tmp_path / "key").write_text("k")
    if routes is not None:
        (tmp_path / "routes.json").write_text(routes)
    command = [sys.executable, "-m", "journeyman", "proxy", "--routes", str(tmp_path / "routes.json")]
    ended = subprocess.run(
        [*command, "--key-file", str(tmp_path / "key")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 78
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 2

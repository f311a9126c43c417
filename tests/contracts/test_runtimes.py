"""Every runtime keeps the same promises: each as the real program where it can be had on this host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.model_reading import facts_at
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.adapters.speed_probe import HttpLongSpeedProbe, HttpSpeedProbe
from journeyman.adapters.tools_probe import TOOLS, HttpToolsProbe
from journeyman.core.model_allocation import allocation_of
from journeyman.core.model_memory import OVERHEAD_BYTES
from journeyman.core.server_failure import Failure, FailureKind
from journeyman.core.worker_specs import Interpreter, model_server_spec
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint
from journeyman_updater.contract import WorkerExit, WorkerFolder, WorkerRecord, session_pids
from tests.support.runtimes import RUNTIMES, Installed, installed_runtime
from tests.support.tiny_gguf import TEMPLATE, TEMPLATE_WITH_TOOLS
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

KEY = b"k-0123456789abcdef"
PYTHON = Interpreter.of(sys.executable, os.environ)


class Servers:
    """Servers of one runtime; none is left behind."""

    def __init__(self, folder: Path, installed: Installed) -> None:
        self.workers = PosixWorkers(folder)
        self.folder = folder
        self.installed = installed

    def start(self, model: Path | None = None, **options: Any) -> WorkerRecord:
        config = replace(self.installed.config(model), **options)
        spec, files = model_server_spec(config, KEY, PYTHON)
        return self.workers.start(f"server-{len(self.workers.known())}", spec, files)

    def endpoint(self, record: WorkerRecord) -> Endpoint:
        eventually(
            lambda: self.workers.read_file(record, "endpoint.json") or not self.workers.running(record),
            within_seconds=60,
        )
        told = self.workers.read_file(record, "endpoint.json")
        assert told, self.workers.last_words(record)
        return Endpoint(json.loads(told)["base_url"], KEY, self.installed.upstream_model)

    def proven(self, record: WorkerRecord) -> Endpoint:
        """Where it answers, once it has generated a token."""
        endpoint = self.endpoint(record)
        eventually(lambda: self.generates(endpoint), within_seconds=60)
        return endpoint

    def generates(self, endpoint: Endpoint) -> bool:
        try:
            asyncio.run(HttpInferenceProbe(timeout_seconds=30).prove(endpoint, endpoint.model))
        except WorkerError:
            return False
        return True

    def end_of(self, record: WorkerRecord) -> WorkerExit | None:
        return asyncio.run(asyncio.wait_for(self.workers.wait(record), 60))

    def stop(self, record: WorkerRecord, grace_seconds: float = 30) -> WorkerExit | None:
        return asyncio.run(asyncio.wait_for(self.workers.stop(record, grace_seconds=grace_seconds), 60))

    def failure(self, record: WorkerRecord) -> Failure:
        self.end_of(record)
        failure = Failure.from_json(self.workers.read_file(record, "failure.json") or b"")
        assert failure is not None, self.workers.last_words(record)
        assert (self.workers.read_file(record, "reason.txt") or b"").decode() == failure.message
        return failure


@pytest.fixture(params=RUNTIMES)
def servers(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    installed = installed_runtime(request.param, tmp_path_factory)
    made = Servers(tmp_path / "workers", installed)
    yield made
    for record in made.workers.known():
        made.stop(record, grace_seconds=5)
        assert not record.worker.is_running()


@pytest.fixture(params=RUNTIMES)
def others(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Servers]]:
    """Servers of one runtime with a model of another template or context."""
    made: list[Servers] = []

    def make(**model: Any) -> Servers:
        installed = installed_runtime(request.param, tmp_path_factory, **model)
        made.append(Servers(tmp_path / f"workers-{len(made)}", installed))
        return made[-1]

    yield make
    for servers in made:
        for record in servers.workers.known():
            servers.stop(record, grace_seconds=5)
            assert not record.worker.is_running()


@contextlib.contextmanager
def streaming(endpoint: Endpoint, tokens: int, words: str = "Hi") -> Iterator[httpx.Response]:
    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": words}],
        "max_tokens": tokens,
        "stream": True,
        "ignore_eos": True,
    }
    headers = {"Authorization": f"Bearer {endpoint.api_key.decode()}"}
    with (
        httpx.Client(timeout=60, trust_env=False) as client,
        client.stream("POST", f"{endpoint.base_url}/chat/completions", json=body, headers=headers) as reply,
    ):
        yield reply


def test_it_streams_and_ends_cleanly(servers: Servers) -> None:
    """It answers on loopback, streams to a last word, ends with 0 on SIGTERM, and answers no more."""
    record = servers.start()
    endpoint = servers.proven(record)
    assert endpoint.base_url.startswith("http://127.0.0.1:")
    with streaming(endpoint, 5) as reply:
        lines = [line for line in reply.iter_lines() if line.startswith("data:")]
    assert lines[-1] == "data: [DONE]"
    assert any('"finish_reason"' in line for line in lines)
    ended = servers.stop(record)
    assert ended is not None
    assert (ended.code, ended.signal) == (0, None)
    assert not servers.generates(endpoint)


def test_its_speed_can_be_told(servers: Servers) -> None:
    """A short answer of every runtime is enough for tokens a second."""
    endpoint = servers.proven(servers.start())
    probe = HttpSpeedProbe(limit_seconds=20)
    assert asyncio.run(probe(endpoint, endpoint.model)) > 0


def test_what_it_took_is_known_with_its_first_token(servers: Servers) -> None:
    """Each llama.cpp has reported its buffers by then; of others resident memory is known."""
    record = servers.start()
    servers.proven(record)
    resident = servers.workers.usage(record).ram_bytes
    taken = allocation_of(servers.workers.log(record), resident)
    assert taken is not None, servers.workers.log(record)
    assert taken.is_reported is (servers.installed.name != "mlx"), servers.workers.log(record)
    # The tiny model is smaller than what the program itself needs.
    assert taken.total_bytes > OVERHEAD_BYTES


def test_its_log_has_no_word_of_a_prompt(servers: Servers) -> None:
    """What people say is nobody's business, however much the server reports of itself."""
    record = servers.start()
    endpoint = servers.proven(record)
    with streaming(endpoint, 3, "confidential") as reply:
        reply.read()
    folder = WorkerFolder(servers.folder / record.worker_id)
    assert b"confidential" not in folder.stderr.read_bytes() + folder.stdout.read_bytes()


def test_its_speed_behind_a_long_prompt_can_be_told(others: Callable[..., Servers]) -> None:
    """Two thousand tokens before the answer are measured, and a context that is too short is a reason."""
    servers = others(context=4096)
    endpoint = servers.proven(servers.start(context_tokens=4096, parallel=1))
    probe = HttpLongSpeedProbe(limit_seconds=30, prompt_seconds=60)
    assert asyncio.run(probe(endpoint, endpoint.model, 4096)) > 0
    with pytest.raises(WorkerError, match="its context of 2048 tokens is below"):
        asyncio.run(probe(endpoint, endpoint.model, 2048))
    hasty = HttpLongSpeedProbe(limit_seconds=30, prompt_seconds=0.001)
    with pytest.raises(WorkerError, match=r"a prompt .*takes? "):
        asyncio.run(hasty(endpoint, endpoint.model, 4096))


@pytest.mark.parametrize(("template", "reach"), [(TEMPLATE, False), (TEMPLATE_WITH_TOOLS, True)])
def test_whether_tools_reach_the_model_is_told_and_they_break_nothing(
    template: str, others: Callable[..., Servers], *, reach: bool
) -> None:
    """With a place for tools in the template and without: the probe tells the truth, as does the store, and
    a request with tools is answered whole, streamed or not.
    """
    servers = others(template=template)
    endpoint = servers.proven(servers.start(context_tokens=1024))
    assert asyncio.run(HttpToolsProbe(limit_seconds=30)(endpoint, endpoint.model)) is reach
    assert facts_at(servers.installed.model).supports_tools is reach
    answer = asked_with_tools(endpoint, stream=False)
    assert answer.status_code == 200, answer.text
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] in {"stop", "length", "tool_calls"}
    assert isinstance(choice["message"].get("content") or "", str)
    streamed = asked_with_tools(endpoint, stream=True)
    events = [line for line in streamed.text.splitlines() if line.startswith("data:")]
    assert (streamed.status_code, events[-1]) == (200, "data: [DONE]")
    assert not any('"error"' in line for line in events)
    assert servers.generates(endpoint)


def asked_with_tools(
    endpoint: Endpoint, *, stream: bool, history: Sequence[dict[str, Any]] = ()
) -> httpx.Response:
    return asked(
        endpoint,
        messages=[*history, {"role": "user", "content": "What is the weather in Paris?"}],
        tools=TOOLS,
        tool_choice="auto",
        max_tokens=24,
        stream=stream,
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_broken_turn_in_a_history_costs_its_own_request_alone(
    others: Callable[..., Servers], *, stream: bool
) -> None:
    """A call of a tool that a model broke off in the middle, sent back as history, gets an answer or an error
    that can be read; the server lives, and answers whoever asks next.
    """
    servers = others(template=TEMPLATE_WITH_TOOLS)
    record = servers.start(context_tokens=1024)
    endpoint = servers.proven(record)
    broken = {"id": "call-1", "type": "function", "function": {"name": "get_weather", "arguments": '{"'}}
    history: list[dict[str, Any]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "", "tool_calls": [broken]},
        {"role": "tool", "tool_call_id": "call-1", "content": "sunny"},
    ]
    for _ in range(2):
        reply = asked_with_tools(endpoint, stream=stream, history=history)
        if reply.is_error or not stream:
            assert isinstance(reply.json(), dict)
        else:
            assert reply.text.rstrip().endswith("data: [DONE]")
    assert servers.generates(endpoint)
    assert servers.workers.running(record)


def asked(endpoint: Endpoint, **body: Any) -> httpx.Response:
    return httpx.post(
        f"{endpoint.base_url}/chat/completions",
        json={"model": endpoint.model, **body},
        headers={"Authorization": f"Bearer {KEY.decode()}"},
        timeout=60,
        trust_env=False,
    )


def test_it_serves_only_who_has_the_key(servers: Servers) -> None:
    """A wrong key is refused by every runtime that knows keys."""
    endpoint = servers.proven(servers.start())
    wrong = Endpoint(endpoint.base_url, b"k-wrong", endpoint.model)
    assert servers.generates(wrong) is not servers.installed.asks_for_key


def test_its_key_can_be_seen_nowhere(servers: Servers) -> None:
    """Arguments and environment of each of its processes, its logs and its spec are free of the key."""
    record = servers.start()
    servers.proven(record)
    seen = b""
    for pid in session_of(record):
        seen += Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    folder = WorkerFolder(servers.folder / record.worker_id)
    for path in (folder.spec, folder.record, folder.stdout, folder.stderr):
        seen += path.read_bytes()
    assert KEY not in seen
    for path in folder.files.iterdir():
        assert path.stat().st_mode & 0o077 == 0 or KEY not in path.read_bytes()


def session_of(record: WorkerRecord) -> list[int]:
    return session_pids(record.worker)


def test_a_stream_that_runs_is_finished_before_it_ends(servers: Servers) -> None:
    """SIGTERM waits for the last word; a client in the middle of its answer gets all of it."""
    record = servers.start()
    endpoint = servers.proven(record)
    ended: list[WorkerExit | None] = []
    stopping = threading.Thread(target=lambda: ended.append(servers.stop(record)))
    with streaming(endpoint, 200) as reply:
        lines = reply.iter_lines()
        first = next(line for line in lines if line.startswith("data:"))
        stopping.start()
        rest = [line for line in lines if line.startswith("data:")]
    stopping.join()
    assert first != "data: [DONE]"
    assert rest[-1] == "data: [DONE]"
    assert ended[0] is not None
    assert ended[0].code == 0


def test_who_is_in_a_hurry_does_not_wait_for_streams(servers: Servers) -> None:
    """SIGINT after SIGTERM ends it in the middle of an answer."""
    record = servers.start()
    endpoint = servers.proven(record)
    with contextlib.suppress(httpx.HTTPError), streaming(endpoint, 1_000_000) as reply:
        next(line for line in reply.iter_lines() if line.startswith("data:"))
        os.kill(record.shim.pid, signal.SIGTERM)
        os.kill(record.shim.pid, signal.SIGINT)
        servers.end_of(record)
    assert not servers.generates(endpoint)


def test_a_killed_server_leaves_no_process(servers: Servers) -> None:
    """SIGKILL of all of it is told with the signal, and nothing of its session runs on."""
    record = servers.start()
    endpoint = servers.proven(record)
    servers.workers.signal(record, signal.SIGKILL)
    ended = servers.end_of(record)
    assert ended is not None
    assert ended.signal == signal.SIGKILL
    eventually(lambda: session_of(record) == [])
    assert not servers.generates(endpoint)


def test_a_port_that_is_taken_is_told_with_its_owner(servers: Servers) -> None:
    """A port that people have chosen and somebody else has fails with the name and pid of that one."""
    with contextlib.closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        record = servers.start(port=other.getsockname()[1])
        failure = servers.failure(record)
    assert failure.kind is FailureKind.PORT_HELD
    assert f"(pid {os.getpid()})" in failure.message


def test_a_model_that_is_not_there_is_told(servers: Servers, tmp_path: Path) -> None:
    """A path that leads nowhere is its own reason, and another try is useless."""
    failure = servers.failure(servers.start(tmp_path / "nowhere.gguf"))
    assert failure.kind is FailureKind.MISSING
    assert failure.is_final


def test_a_prompt_that_is_too_long_is_refused_and_not_cut(servers: Servers) -> None:
    """A question that does not fit is told, as a model that has lost half of it answers all the same."""
    endpoint = servers.proven(servers.start())
    messages = [{"role": "user", "content": "many words " * 400}]
    reply = asked(endpoint, messages=messages, max_tokens=1)
    if servers.installed.knows_its_context:
        assert reply.status_code == 400
    else:
        assert reply.json()["usage"]["prompt_tokens"] > 4000

"""The real llama.cpp server, started as the agent starts it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import Interpreter, model_server_spec
from journeyman.errors import WorkerError
from journeyman.ports import Endpoint
from journeyman_updater.contract import WorkerExit, WorkerFolder, WorkerRecord
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

KEY = b"k-0123456789abcdef"
PYTHON = Interpreter.of(sys.executable, os.environ)


class Servers:
    """Starts servers and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self.workers = PosixWorkers(folder)
        self.folder = folder

    def start(self, model: Path) -> WorkerRecord:
        spec, files = model_server_spec(
            ServerConfig("tiny", str(model), "0f", context_tokens=512, parallel=2, threads=1), KEY, PYTHON
        )
        return self.workers.start("server", spec, files)

    def endpoint(self, record: WorkerRecord) -> Endpoint:
        eventually(lambda: self.workers.read_file(record, "endpoint.json"), within_seconds=30)
        told = json.loads(self.workers.read_file(record, "endpoint.json") or b"")
        return Endpoint(told["base_url"], KEY)

    def end_of(self, record: WorkerRecord) -> WorkerExit | None:
        return asyncio.run(asyncio.wait_for(self.workers.wait(record), 30))

    def stop(self, record: WorkerRecord) -> WorkerExit | None:
        return asyncio.run(asyncio.wait_for(self.workers.stop(record, grace_seconds=10), 30))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    servers = Servers(tmp_path / "workers")
    yield servers
    for record in servers.workers.known():
        servers.stop(record)


def prove(endpoint: Endpoint) -> None:
    asyncio.run(HttpInferenceProbe(timeout_seconds=30).prove(endpoint, "tiny"))


def test_it_generates_for_who_has_the_key_and_ends_cleanly(servers: Servers, tiny_model: Path) -> None:
    """It proves itself by a token, answers 401 to a wrong key, and ends with 0 on SIGTERM."""
    record = servers.start(tiny_model)
    endpoint = servers.endpoint(record)
    assert endpoint.base_url.startswith("http://127.0.0.1:")
    prove(endpoint)
    for wrong in (b"k-wrong", b"x"):
        with pytest.raises(WorkerError, match="401"):
            prove(Endpoint(endpoint.base_url, wrong))
    ended = servers.stop(record)
    assert ended is not None
    assert (ended.code, ended.signal) == (0, None)
    with pytest.raises(WorkerError, match="no answer"):
        prove(endpoint)


def test_its_key_can_be_seen_nowhere(servers: Servers, tiny_model: Path) -> None:
    """Arguments, environment, logs and the spec are free of the key."""
    record = servers.start(tiny_model)
    prove(servers.endpoint(record))
    process = Path(f"/proc/{record.worker.pid}")
    seen = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    folder = WorkerFolder(servers.folder / "server")
    for path in (folder.spec, folder.record, folder.stdout, folder.stderr, folder.files / "load.log"):
        seen += path.read_bytes()
    assert KEY not in seen


@pytest.mark.parametrize(
    ("keep", "reason"),
    [(0, "magic"), (300, "key-value pairs"), (200_000, "not within the file bounds")],
    ids=["empty", "header-cut", "weights-cut"],
)
def test_a_damaged_model_is_told_within_seconds(
    servers: Servers, tiny_model: Path, tmp_path: Path, keep: int, reason: str
) -> None:
    """Code 74, one typed line on stderr, and llama.cpp's own reason in a file."""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(tiny_model.read_bytes()[:keep])
    record = servers.start(damaged)
    ended = servers.end_of(record)
    assert ended is not None
    assert ended.code == 74
    assert ended.elapsed_seconds < 10
    told = (servers.workers.read_file(record, "reason.txt") or b"").decode()
    assert told.startswith("model tiny does not load: ")
    assert reason in told
    stderr = WorkerFolder(servers.folder / "server").stderr.read_text()
    # llama.cpp logs from a thread of its own, whose last words may come after ours.
    assert f"journeyman-model-error: {told}" in stderr.splitlines()


def test_a_missing_model_is_told(servers: Servers, tmp_path: Path) -> None:
    """A path that leads nowhere is a model error, too."""
    record = servers.start(tmp_path / "nowhere.gguf")
    ended = servers.end_of(record)
    assert ended is not None
    assert ended.code == 74
    assert b"No such file" in (servers.workers.read_file(record, "reason.txt") or b"")

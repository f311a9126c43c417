"""The heartbeat is blocked by nothing: no transfer, no busy cores, no program that hangs."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from journeyman.model.resources import FLEET_NODES
from journeyman_plane.ports import Key
from tests.support.agents import AgentProcess, agent
from tests.support.plane import RunningPlane, running_plane
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

GIGABYTE = 1024**3
CHUNK = bytes(1024 * 1024)
BEATS = 4
STALE_AFTER_SECONDS = 90.0
DOWNLOAD = """
import sys, urllib.request
total = 0
with urllib.request.urlopen(sys.argv[1]) as reply:
    while data := reply.read(1 << 20):
        total += len(data)
print(total)
"""


@contextmanager
def large_file() -> Iterator[tuple[str, threading.Event]]:
    """The URL of a gigabyte whose last part comes only when the event is set."""
    release = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(GIGABYTE))
            self.end_headers()
            for _ in range(GIGABYTE // len(CHUNK) - 1):
                self.wfile.write(CHUNK)
            release.wait(STALE_AFTER_SECONDS * 4)
            self.wfile.write(CHUNK)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", release
    finally:
        release.set()
        server.shutdown()
        serving.join()
        server.server_close()


@contextmanager
def deaf_server() -> Iterator[str]:
    """The URL of somebody who accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/repository.git"


def begin(node: AgentProcess, *words: str) -> subprocess.Popen[bytes]:
    """A job of the host lane."""
    command = [sys.executable, "-m", "journeyman", "lane", "run", "--state-root", str(node.root.path)]
    return subprocess.Popen([*command, "--cpu", "0", "--", *words], stdout=subprocess.PIPE)


def beaten_at(plane: RunningPlane, name: str) -> str:
    """When the plane last heard of the node, as the node says."""
    node = plane.store.get(Key(FLEET_NODES.group, FLEET_NODES.plural, "", name))
    return str(node["status"]["lastHeartbeatTime"])


def has_beaten_since(plane: RunningPlane, name: str, before: str) -> bool:
    """Whether another heartbeat has landed."""
    return beaten_at(plane, name) != before


def test_heartbeats_land_while_the_host_is_busy(tmp_path: Path) -> None:
    """A gigabyte comes in, a core is taken for each CPU, git hangs, a large model is read: beats go on."""
    model = tmp_path / "large.gguf"
    write_tiny_gguf(model)
    with model.open("r+b") as file:
        file.truncate(GIGABYTE)
    with ExitStack() as held:
        plane = held.enter_context(running_plane(tmp_path))
        url, release = held.enter_context(large_file())
        silence = held.enter_context(deaf_server())
        node = held.enter_context(
            agent(tmp_path, plane.url, plane.token_file, models=(str(model),))
        ).until_admitting()
        download = begin(node, sys.executable, "-c", DOWNLOAD, url)
        others = [begin(node, "/bin/sh", "-c", "while :; do :; done") for _ in range(2)]
        others.append(begin(node, "git", "ls-remote", silence))
        try:
            eventually(lambda: running_jobs(node) == 4, within_seconds=60)
            for _ in range(BEATS):
                later = partial(has_beaten_since, plane, node.name, beaten_at(plane, node.name))
                eventually(later, within_seconds=STALE_AFTER_SECONDS)
            assert running_jobs(node) == 4
            release.set()
            out, _ = download.communicate(timeout=120)
            assert int(out) == GIGABYTE
        finally:
            for job in others:
                job.kill()
                job.communicate()


def running_jobs(node: AgentProcess) -> int:
    """How many jobs of the lane run now."""
    return sum(record.kind == "lane" and record.worker.is_running() for record in node.worker_records())

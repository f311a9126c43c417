"""Real planes for tests: one in a thread of the test, and one in a process that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from journeyman_plane.ports import Clock
from journeyman_plane.run import Plane, PlaneSettings

_START_SECONDS = 20.0
_STOP_SECONDS = 10.0
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
# Over plain http a client needs no CA bundle, which takes longer to load than most tests take.
TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
FOREMAN = "/apis/foreman.llmkube.dev/v1alpha1"


@dataclass(frozen=True)
class RunningPlane:
    """A plane that answers requests.

    Attributes:
        url: where.
        token: the bearer token.
        token_file: the file that holds it.
        data_dir: its folder.
        plane: the object itself, for `stop` and `store`.
    """

    url: str
    token: str
    token_file: Path
    data_dir: Path
    plane: Plane

    @property
    def store(self) -> Any:
        """The store of the plane; it may be used from the thread of the test."""
        return self.plane.store

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.data_dir / "admin.kubeconfig"

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client with the token; the caller closes it."""
        return http_client(self.url, self.token, **options)


@contextmanager
def running_plane(tmp_path: Path, clock: Clock | None = None, **settings: Any) -> Iterator[RunningPlane]:
    """A plane in a thread of its own, on a free port, stopped at the end.

    Args:
        tmp_path: its data folder is `plane` below this one.
        clock: for reconcilers and ages; the host's where it is left out.
        settings: fields of PlaneSettings.
    """
    data_dir = tmp_path / "plane"
    configured = replace(PlaneSettings(data_dir, port=0), **settings)
    plane = Plane(configured, clock)
    started, failures = threading.Event(), list[BaseException]()

    def serve() -> None:
        try:
            asyncio.run(plane.serve(started.set))
        except BaseException as error:  # noqa: BLE001  # the thread of the test raises it
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=serve, name="plane")
    thread.start()
    assert started.wait(_START_SECONDS), "the plane did not start"
    try:
        if not failures:
            yield RunningPlane(plane.url, plane.token, configured.token_file, data_dir, plane)
    finally:
        plane.stop()
        thread.join(_STOP_SECONDS)
    if failures:
        raise failures[0]
    assert not thread.is_alive(), "the plane did not stop"


@asynccontextmanager
async def plane_in_this_loop(tmp_path: Path, clock: Clock, **settings: Any) -> AsyncIterator[RunningPlane]:
    """A plane that is served by the loop of the test, on a free port, stopped at the end.

    Args:
        tmp_path: its data folder is `plane` below this one.
        clock: for reconcilers, ages and creation times.
        settings: fields of PlaneSettings.
    """
    data_dir = tmp_path / "plane"
    configured = replace(PlaneSettings(data_dir, port=0), **settings)
    plane = Plane(configured, clock)
    started = asyncio.Event()
    serving = asyncio.create_task(plane.serve(started.set))
    await started.wait()
    try:
        yield RunningPlane(plane.url, plane.token, configured.token_file, data_dir, plane)
    finally:
        plane.stop()
        await serving


@dataclass
class PlaneProcess:
    """`journeyman plane` as a process; it keeps folder and port over `start` after `kill`.

    Attributes:
        data_dir: its folder.
        port: 0 until the first start, which finds a free one.
        url: where it listens.
        log: where its log goes, as `subprocess` names it; to ours where it is left out.
    """

    data_dir: Path
    port: int = 0
    url: str = ""
    options: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = None
    log: int | None = None

    @property
    def token(self) -> str:
        """The bearer token."""
        return (self.data_dir / "admin.token").read_text().strip()

    def start(self) -> PlaneProcess:
        """Starts it, and returns once it answers requests."""
        command = [sys.executable, "-m", "journeyman", "plane", "--json", *self.options]
        command += ["--data-dir", str(self.data_dir), "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        facts = json.loads(_document(self.process))
        self.url, self.port = facts["url"], int(facts["url"].rpartition(":")[2])
        return self

    def kill(self) -> None:
        """SIGKILL, as `kill -9` sends it."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def client(self, **options: Any) -> httpx.Client:
        """An HTTP client with the token; the caller closes it."""
        return http_client(self.url, self.token, **options)

    def _end(self, number: int) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        code = self.process.wait(_STOP_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextmanager
def spawn_plane(tmp_path: Path, *options: str, log: int | None = None) -> Iterator[PlaneProcess]:
    """A `journeyman plane` process on a free port, stopped at the end if it still runs.

    Args:
        tmp_path: its data folder is `plane` below this one.
        options: further options of the command.
        log: where its log goes.
    """
    plane = PlaneProcess(tmp_path / "plane", options=options, log=log).start()
    try:
        yield plane
    finally:
        plane.kill()


def http_client(url: str, token: str, **options: Any) -> httpx.Client:
    """An HTTP client that carries a bearer token; the caller closes it."""
    options.setdefault("verify", TRUSTS_NOBODY)
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, **options)


def fleet_node(name: str, **spec: Any) -> dict[str, Any]:
    """A FleetNode to POST."""
    return {"metadata": {"name": name}, "spec": {"nodeName": name} | spec}


def agentic_task(name: str, spec: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A freeform AgenticTask to POST."""
    return {
        "metadata": {"name": name},
        "spec": {"kind": "freeform", "payload": {"prompt": "Hello."}} | dict(spec or {}),
    }


def _document(process: subprocess.Popen[str]) -> str:
    """The JSON document that the process prints at its start; bounded, as a deadline kills the process."""
    assert process.stdout is not None
    deadline = threading.Timer(_START_SECONDS, process.kill)
    deadline.start()
    try:
        lines: list[str] = []
        while not lines or lines[-1].rstrip() != "}":
            line = process.stdout.readline()
            assert line, f"the plane ended with {process.wait(_STOP_SECONDS)} before it listened"
            lines.append(line)
        return "".join(lines)
    finally:
        deadline.cancel()

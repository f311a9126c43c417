"""Serving what the fleet asks for: a real plane, a real agent that has joined it, a real model over http."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman_updater.contract import StateRoot
from tests.support.agents import AgentProcess, roomy
from tests.support.plane import MERGE_PATCH, PlaneProcess, spawn_plane
from tests.support.proxy_clients import StreamingClient, is_whole
from tests.support.services import model_object, service_object
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

GROUP = "/apis/inference.llmkube.dev/v1alpha1/namespaces/default"
SERVICE, NAME = f"{GROUP}/inferenceservices/chat", "attic"
LOAD_SECONDS = 60.0
# The tiny model needs some seconds for it.
LONG = 1500


@contextmanager
def served_folder(folder: Path) -> Iterator[str]:
    """A web server for a folder, on this machine."""
    handler = functools.partial(_Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@contextmanager
def joined_agent(folder: Path, plane: PlaneProcess, **options: str) -> Iterator[AgentProcess]:
    """An agent with the credential of its own node, which is no admin's."""
    root = StateRoot(roomy(folder / NAME))
    given = {"fleet_services": "true", "model_plain_http_hosts": "127.0.0.1"} | options
    running = AgentProcess(root, plane.url, folder / "credential", NAME, options=given)
    _join(plane, folder / "credential")
    try:
        yield running.start()
    finally:
        if running.process is not None and running.process.poll() is None:
            running.kill()
        running.kill_workers()


def _join(plane: PlaneProcess, file: Path) -> None:
    """What `journeyman join` does with the plane."""
    credential = f"node.{NAME}.{'c' * 43}"
    with plane.client() as admin:
        token = admin.post("/join-tokens", json={}).json()["token"]
    body = {"name": NAME, "instance": "instance-1", "credential": credential}
    with httpx.Client(base_url=plane.url, headers={"Authorization": f"Bearer {token}"}) as stranger:
        assert stranger.post("/join", json=body).status_code == 201
    file.write_text(credential)


def apply(plane: PlaneProcess, *objects: dict[str, Any]) -> None:
    with plane.client() as admin:
        for body in objects:
            kind = "models" if body["kind"] == "Model" else "inferenceservices"
            reply = admin.post(f"{GROUP}/{kind}", json=body)
            assert reply.status_code == 201, reply.text


def change(plane: PlaneProcess, **spec: Any) -> None:
    with plane.client() as admin:
        reply = admin.patch(SERVICE, json={"spec": spec}, headers=MERGE_PATCH)
        assert reply.is_success, reply.text


def status(plane: PlaneProcess) -> dict[str, Any]:
    with plane.client() as admin:
        return dict(admin.get(SERVICE).json().get("status") or {})


def until(plane: PlaneProcess, phase: str) -> dict[str, Any]:
    eventually(lambda: status(plane).get("phase") == phase, within_seconds=LOAD_SECONDS)
    return status(plane)


def servers(running: AgentProcess) -> list[int]:
    records = running.worker_records()
    return [each.worker.pid for each in records if each.kind == "model-server" and each.worker.is_running()]


def client_of(running: AgentProcess) -> StreamingClient:
    """A client of the proxy of that host, for the model of the service."""
    eventually(lambda: running.status()["proxy"]["baseUrl"], within_seconds=LOAD_SECONDS)
    proxy = running.status()["proxy"]
    return StreamingClient(proxy["baseUrl"], Path(proxy["keyFile"]).read_text().strip(), "chat")


def answer(running: AgentProcess) -> bytes:
    """A few words of the model of the service."""
    return asyncio.run(asyncio.wait_for(client_of(running).read_all(5), LOAD_SECONDS))


def test_the_life_of_a_service(tmp_path: Path, real_model: Path) -> None:
    """It comes, is suspended, outlives a killed agent without the plane, and goes, by its object alone."""
    digest = hashlib.sha256(real_model.read_bytes()).hexdigest()
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "smol.gguf").symlink_to(real_model)
    with (
        served_folder(tmp_path / "web") as url,
        spawn_plane(tmp_path) as plane,
        joined_agent(tmp_path, plane) as running,
    ):
        weights = model_object(source=f"{url}/smol.gguf", sha256=digest)
        apply(plane, weights, service_object(node=NAME, contextSize=1024))
        told = until(plane, "Ready")
        assert (told["readyReplicas"], told["replicas"]) == (1, 1)
        assert is_whole(answer(running))
        (model,) = running.status()["models"]
        assert (model["name"], model["service"], model["contextTokens"]) == ("chat", "default/chat", 1024)
        assert running.status()["services"][0]["phase"] == "Ready"

        change(plane, suspend=True)
        assert until(plane, "Suspended")["readyReplicas"] == 0
        eventually(lambda: servers(running) == [], within_seconds=LOAD_SECONDS)
        change(plane, suspend=False)
        until(plane, "Ready")

        before = servers(running)
        plane.kill()
        running.kill()
        running.start().until_serving()
        assert servers(running) == before
        assert is_whole(answer(running))
        plane.start()
        # A beat that was taken means that it has read its services again, or is about to.
        eventually(lambda: not running.status()["lastHeartbeatError"], within_seconds=LOAD_SECONDS)
        assert servers(running) == before

        with plane.client() as admin:
            assert admin.delete(SERVICE).is_success
        eventually(lambda: servers(running) == [], within_seconds=LOAD_SECONDS)
        assert running.status()["models"] == []


def test_a_stream_that_runs_is_finished_before_its_server_goes(tmp_path: Path, tiny_model: Path) -> None:
    """Whoever suspends a service in the middle of an answer cuts nobody off, and then the server ends."""

    async def suspended_meanwhile(client: StreamingClient, plane: PlaneProcess) -> bytes:
        stream = await (await client.begin(LONG)).until_begun()
        await asyncio.to_thread(change, plane, suspend=True)
        await asyncio.to_thread(until, plane, "Suspended")
        assert not stream.reader.at_eof()
        return await asyncio.wait_for(stream.rest(), LOAD_SECONDS)

    folder = {"fleet_service_model_folders": str(tiny_model.parent)}
    with spawn_plane(tmp_path) as plane, joined_agent(tmp_path, plane, **folder) as running:
        apply(plane, model_object(source=str(tiny_model)), service_object(node=NAME, contextSize=2048))
        until(plane, "Ready")
        assert is_whole(asyncio.run(suspended_meanwhile(client_of(running), plane)))
        eventually(lambda: servers(running) == [], within_seconds=LOAD_SECONDS)


def test_what_this_host_does_not_take_is_refused_in_the_status(tmp_path: Path, tiny_model: Path) -> None:
    """A Model that names a file of this host is served from the folders that its settings name, only."""
    with spawn_plane(tmp_path) as plane, joined_agent(tmp_path, plane) as running:
        apply(plane, model_object(source=str(tiny_model)), service_object(node=NAME))
        told = until(plane, "Failed")
        assert told["schedulingStatus"] == "SourceRefused"
        assert servers(running) == []
        running.kill()
        running.options |= {"fleet_service_model_folders": str(tiny_model.parent)}
        running.start()
        until(plane, "Ready")
        assert is_whole(answer(running))

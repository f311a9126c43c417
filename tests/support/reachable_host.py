"""A host that others can reach: a plane and an agent on one machine, a client on another, a cable between."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman_updater.contract import StateRoot
from tests.support.agents import AgentProcess, roomy
from tests.support.joined import ask_to_join, join_token, new_credential
from tests.support.netns import Namespace, cable, namespaces
from tests.support.plane import MERGE_PATCH, PlaneProcess, spawn_plane
from tests.support.services import model_object, service_object
from tests.support.waiting import eventually

NAME, SERVICE, PORT = "attic", "chat", 6482
SERVING = "/apis/inference.llmkube.dev/v1alpha1/namespaces/default"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SECONDS = 60.0


@dataclass
class ReachableHost:
    """The machines, and what runs on them.

    Attributes:
        home: where plane and agent are.
        near: whose clients may connect.
        far: whose clients may not.
        address: at which the host is reached.
        plane: the control plane.
        agent: with the credential of its own node.
    """

    home: Namespace
    near: Namespace
    far: Namespace
    address: str
    plane: PlaneProcess
    agent: AgentProcess

    def start(self) -> None:
        """Starts the agent, again or for the first time."""
        with self.home.inside():
            self.agent.start()

    def get(self, path: str) -> dict[str, Any] | None:
        """An object of the plane, or None."""
        with self.home.inside(), self.plane.client() as admin:
            reply = admin.get(path)
        return reply.json() if reply.status_code == 200 else None

    def serve(self, source: Path) -> None:
        """Has the fleet ask this host for a model."""
        self.agent.options["fleet_service_model_folders"] = str(source.parent)
        with self.home.inside(), self.plane.client() as admin:
            for kind, body in (
                ("models", model_object(source=str(source))),
                ("inferenceservices", service_object(SERVICE, NAME)),
            ):
                admin.post(f"{SERVING}/{kind}", json=body).raise_for_status()

    def change(self, **spec: Any) -> None:
        """Changes what the fleet asks for."""
        path = f"{SERVING}/inferenceservices/{SERVICE}"
        with self.home.inside(), self.plane.client() as admin:
            admin.patch(path, json={"spec": spec}, headers=MERGE_PATCH).raise_for_status()

    def is_ready(self) -> bool | None:
        """What the plane says of the endpoint; None where there is none."""
        found = self.get(f"{SLICES}/{SERVICE}")
        return None if found is None else bool(found["endpoints"][0]["conditions"]["ready"])

    def until_ready(self) -> None:
        """Returns once the cluster would send requests here."""
        eventually(self.is_ready, within_seconds=SECONDS)

    def ask(self, tokens: int, *, of: Namespace | None = None) -> Reply:
        """Asks by the Service's name, with a model that nobody here has heard of."""
        asked = {"model": "gpt-4", "stream": True, "max_tokens": tokens, "ignore_eos": True}
        body = json.dumps(asked | {"messages": [{"role": "user", "content": "hi"}]}).encode()
        key = self.agent.root.reach_key_file.read_text().strip()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {SERVICE}.default.svc.cluster.local:8080\r\n"
            f"Authorization: Bearer {key}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with (of or self.near).inside():
            client = socket.create_connection((self.address, PORT), timeout=SECONDS)
        return Reply(client, head.encode() + body)


class Reply:
    """What comes back for one request, as it comes; nothing more, where the connection is torn down."""

    def __init__(self, client: socket.socket, request: bytes) -> None:
        self._client = client
        self._so_far = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(request)

    def until_begun(self) -> Reply:
        """Returns with the first event."""
        while b'"finish_reason"' not in self._so_far:
            self._so_far += self._more()
        return self

    def all(self) -> bytes:
        """All of it."""
        with self._client, contextlib.suppress(ConnectionError):
            while data := self._client.recv(65536):
                self._so_far += data
        return self._so_far

    def _more(self) -> bytes:
        data = self._client.recv(65536)
        assert data, self._so_far
        return data


@contextmanager
def reachable_host(folder: Path, **options: str) -> Iterator[ReachableHost]:
    """A host that has not started its agent yet.

    Args:
        folder: for everything.
        options: further settings of the agent.
    """
    with namespaces("home", "near", "far") as (home, near, far), ExitStack() as stack:
        address, _ = cable(home, near, number=1)
        cable(home, far, number=2)
        far.ip("route", "add", address, "via", "10.213.2.1")
        credential = new_credential(NAME)
        with home.inside():
            plane = stack.enter_context(spawn_plane(folder))
            asked = ask_to_join(plane, join_token(plane), NAME, credential=credential)
        assert asked.is_success, asked.text
        (folder / "credential").write_text(credential)
        given = {
            "fleet_services": "true",
            "proxy_reach_address": address,
            "proxy_reach_sources": "10.213.1.0/24",
            "registration_interval_seconds": "1",
        }
        root = StateRoot(roomy(folder / NAME))
        agent = AgentProcess(root, plane.url, folder / "credential", NAME, options=given | options)
        try:
            yield ReachableHost(home, near, far, address, plane, agent)
        finally:
            if agent.process is not None and agent.process.poll() is None:
                agent.kill()
            agent.kill_workers()

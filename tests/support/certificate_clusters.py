"""Clusters that sign certificates of nodes: a real kube-apiserver, or a small server in front of a plane."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.support.api_server import client_of
from tests.support.plane import running_plane
from tests.support.signing_server import (
    BOOTSTRAP,
    GROUP_PATH,
    SigningServer,
    approve,
    issue,
    request_in,
    signing_server,
)
from tests.support.tls import Authority

JsonObject = dict[str, Any]
KUBECTL = Path(sys.executable).parent / "kubectl"
NODES = "/apis/foreman.llmkube.dev/v1alpha1/fleetnodes"
ASKER = "/api/v1/namespaces/foreman-system/serviceaccounts/node-bootstrapper/token"


class Cluster(Protocol):
    """What an administrator of it does.

    Attributes:
        url: of the API server.
        ca_file: of its CA.
    """

    url: str
    ca_file: Path

    def prepare(self, node: str) -> str:
        """Gives the node its rights; returns a token that may ask for certificates."""
        ...

    def requests(self) -> list[JsonObject]:
        """All CertificateSigningRequests."""
        ...

    def approve(self, name: str) -> None: ...

    def deny(self, name: str) -> None: ...

    def sign(self, name: str, life: timedelta) -> None:
        """What the signer does with an approved request."""
        ...

    def node(self, name: str) -> JsonObject:
        """The FleetNode; empty if there is none."""
        ...


class FrontOfAPlane:
    """The small server, with a plane behind it."""

    def __init__(self, server: SigningServer) -> None:
        self._server = server
        self.url, self.ca_file = server.url, server.ca_file

    def prepare(self, node: str) -> str:
        self._server.credential_of(node)
        return BOOTSTRAP

    def requests(self) -> list[JsonObject]:
        return list(self._server.requests.objects.values())

    def approve(self, name: str) -> None:
        approve(self._server.requests.objects[name])

    def deny(self, name: str) -> None:
        approve(self._server.requests.objects[name], "Denied", message="not this one")

    def sign(self, name: str, life: timedelta) -> None:
        found = self._server.requests.objects[name]
        issue(found, self._server.authority.sign(request_in(found), life=life))

    def node(self, name: str) -> JsonObject:
        assert self._server.plane is not None
        with self._server.plane.client() as client:
            reply = client.get(f"{NODES}/{name}")
        return reply.json() if reply.is_success else {}


@contextmanager
def front_of_a_plane(folder: Path) -> Iterator[FrontOfAPlane]:
    """One that answers while the block lasts."""
    with running_plane(folder) as plane, signing_server(Authority(), folder, plane) as server:
        yield FrontOfAPlane(server)


class RealCluster:
    """A kube-apiserver: the administrator uses kubectl, and the test is the signer, by the API as any signer.

    Args:
        kubeconfig: of an administrator; its folder holds the CA that the server trusts for clients.
        client: sends as the administrator.
    """

    def __init__(self, kubeconfig: Path, client: httpx.Client) -> None:
        self._kubeconfig = kubeconfig
        self._client = client
        self.url = str(client.base_url).rstrip("/")
        self.ca_file = kubeconfig.parent / "ca.crt"
        self._authority = Authority.of(self.ca_file, kubeconfig.parent / "ca.key")

    def prepare(self, node: str) -> str:
        words = ["cluster", "manifests", node, "--credential", "certificate", "--create-namespace", "--json"]
        printed = subprocess.run(
            [sys.executable, "-m", "journeyman", *words], capture_output=True, text=True, check=True
        )
        made = json.loads(printed.stdout)
        known = self._client.get("/apis/admissionregistration.k8s.io/v1").json()["resources"]
        if not any(each["name"] == "validatingadmissionpolicies" for each in known):
            made["items"] = [each for each in made["items"] if not each["kind"].startswith("Validating")]
        self._kubectl("apply", "--validate=false", "-f", "-", given=json.dumps(made))
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        reply = self._client.post(ASKER, json=body)
        assert reply.is_success, reply.text
        return str(reply.json()["status"]["token"])

    def requests(self) -> list[JsonObject]:
        items: list[JsonObject] = self._client.get(GROUP_PATH).json()["items"]
        return items

    def approve(self, name: str) -> None:
        self._kubectl("certificate", "approve", name)

    def deny(self, name: str) -> None:
        self._kubectl("certificate", "deny", name)

    def sign(self, name: str, life: timedelta) -> None:
        found = self._client.get(f"{GROUP_PATH}/{name}").json()
        certificate = self._authority.sign(request_in(found), life=life)
        found["status"]["certificate"] = base64.b64encode(certificate.encode()).decode()
        reply = self._client.put(f"{GROUP_PATH}/{name}/status", json=found)
        assert reply.is_success, reply.text

    def node(self, name: str) -> JsonObject:
        reply = self._client.get(f"{NODES}/{name}")
        return reply.json() if reply.is_success else {}

    def _kubectl(self, *words: str, given: str = "") -> None:
        command = [str(KUBECTL), "--kubeconfig", str(self._kubeconfig), *words]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@contextmanager
def real_cluster(kubeconfig: Path) -> Iterator[RealCluster]:
    """The cluster of that kubeconfig."""
    with client_of(kubeconfig) as client:
        yield RealCluster(kubeconfig, client)

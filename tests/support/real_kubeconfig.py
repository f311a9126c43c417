"""The fixture of the real API server: built where nobody has yet, with our kinds, one for a whole run."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from journeyman_plane.adapters.crd_files import custom_resource_definitions
from tests.support.api_server import client_of
from tests.support.real_apiserver import running_apiserver
from tests.support.waiting import eventually

BUILD = Path(__file__).parents[2] / "scripts" / "real-apiserver"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVED_SECONDS = 60.0


@pytest.fixture(scope="session")
def real_kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of an administrator of a kube-apiserver that is stopped at the end."""
    built = subprocess.run([BUILD, "build"], stdout=subprocess.PIPE, text=True, check=True)
    folder = tmp_path_factory.mktemp("real-apiserver")
    with running_apiserver(Path(built.stdout.strip()), folder) as kubeconfig:
        install_definitions(kubeconfig)
        yield kubeconfig


def install_definitions(kubeconfig: Path) -> None:
    """Creates our CustomResourceDefinitions, and waits until they are served."""
    with client_of(kubeconfig) as client:
        for definition in custom_resource_definitions():
            reply = client.post(DEFINITIONS, json=definition)
            assert reply.status_code == httpx.codes.CREATED, reply.text
            spec = definition["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            served = partial(_is_served, client, path)
            eventually(served, within_seconds=SERVED_SECONDS, every_seconds=0.1)


def _is_served(client: httpx.Client, path: str) -> bool:
    return client.get(path).is_success

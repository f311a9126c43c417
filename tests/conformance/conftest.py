"""The servers that the suite runs against, and the answers that it holds them to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.api_server import ApiServer, client_of, differences
from tests.support.certificate_clusters import Cluster, front_of_a_plane, real_cluster
from tests.support.plane import running_plane

# So many changes the plane keeps: few, so that a version is soon too old.
HISTORY = 32
RECORDED = Path(__file__).parent / "recorded"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test runs against the plane, and against the others that were asked for."""
    if "kubeconfig" in metafunc.fixturenames:
        servers = ["plane"]
        servers += ["real"] if metafunc.config.getoption("--real-apiserver") else []
        servers += ["given"] if metafunc.config.getoption("--api-server") else []
        metafunc.parametrize("kubeconfig", servers, indirect=True, scope="session")
    if "cluster" in metafunc.fixturenames:
        # The embedded plane signs no certificates; a small server in front of it does.
        servers = ["front", *(["real"] if metafunc.config.getoption("--real-apiserver") else [])]
        metafunc.parametrize("cluster", servers, indirect=True, scope="session")


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of an administrator of the server."""
    if request.param == "plane":
        with running_plane(tmp_path_factory.mktemp("api-server"), history=HISTORY) as plane:
            yield plane.kubeconfig
    elif request.param == "real":
        yield request.getfixturevalue("real_kubeconfig")
    else:
        yield Path(request.config.getoption("--api-server"))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One that signs certificates of nodes."""
    if request.param == "front":
        with front_of_a_plane(tmp_path_factory.mktemp("front")) as found:
            yield found
    else:
        with real_cluster(request.getfixturevalue("real_kubeconfig")) as real:
            yield real


@pytest.fixture
def server(request: pytest.FixtureRequest, kubeconfig: Path) -> Iterator[ApiServer]:
    """The server, seen by an administrator; what it answers in the test must be what is recorded."""
    name = request.node.callspec.params["kubeconfig"]
    with client_of(kubeconfig) as client:
        found = ApiServer(name, kubeconfig, client)
        yield found
        found.clean_up()
    if found.transcript.exchanges and name != "given":
        file = RECORDED / f"{request.node.originalname.removeprefix('test_')}.json"
        compare_or_record(found, file, record=name == "real" and request.config.getoption("--record"))


def compare_or_record(server: ApiServer, file: Path, *, record: bool) -> None:
    """Holds the answers against those of the file, or writes the file."""
    answers = server.transcript.exchanges
    if record:
        file.write_text(json.dumps(answers, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        return
    found = list(differences(json.loads(file.read_text()), answers))
    assert not found, "\n".join([f"the {server.name} does not answer as {file.name} says:", *found])

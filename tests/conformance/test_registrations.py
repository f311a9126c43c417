"""What a reachable host writes is stored as it was meant, and its account may write just that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest

from journeyman.core.fleet_services import ServedService
from journeyman.core.proxy.reach import Reach
from journeyman.core.registration import Registrar, difference
from tests.support.api_server import ApiServer
from tests.support.node_accounts import has_accounts, let_register, tokens_of

pytestmark = pytest.mark.slow
MINE = "conformance-mine"
KUBE_SERVICES = "/api/v1/namespaces/default/services"
DISCOVERY = "/apis/discovery.k8s.io/v1"
SLICES = f"{DISCOVERY}/namespaces/default/endpointslices"
SERVED = ServedService("default", "conformance.coder", "uid", "coder", 8080, is_ready=True)
REGISTRAR = Registrar(MINE, "1.2.3", Reach("100.64.0.7", 6482, ("10.0.0.0/8",)))


@pytest.fixture
def node(server: ApiServer) -> Iterator[ApiServer]:
    """The server as the account of a node sees it that may register that one service."""
    (token,) = tokens_of(server, MINE)
    let_register(server, MINE, SERVED.name)
    with ExitStack() as stack:
        yield stack.enter_context(server.as_bearer(token))


def wanted(path: str, *, ready: bool) -> dict[str, Any]:
    if path == KUBE_SERVICES:
        return REGISTRAR.service(SERVED)
    return REGISTRAR.slice(SERVED, datetime(2026, 1, 1, tzinfo=UTC), ready=ready)


def said(node: ApiServer, method: str, path: str, body: Any = None) -> Any:
    reply = node.call(method, path, body, record=False)
    assert reply.is_success, reply.text
    return reply.json()


@pytest.mark.parametrize("path", [KUBE_SERVICES, SLICES], ids=["service", "slice"])
def test_a_registration_is_stored_as_it_was_meant(server: ApiServer, node: ApiServer, path: str) -> None:
    """What the server adds is not taken for a difference, and a change is one patch of just that."""
    if path == SLICES and not server.client.get(DISCOVERY).is_success:
        pytest.skip("cannot run here: this server has no discovery.k8s.io/v1 (Kubernetes 1.21)")
    own = f"{path}/conformance-coder"
    server.client.delete(own)
    server.made_paths.append(own)
    said(node, "POST", path, wanted(path, ready=True))
    stored = said(node, "GET", own)
    assert difference(stored, wanted(path, ready=True)) is None
    found = said(node, "GET", f"{path}?labelSelector=journeyman.dev/node={MINE}")["items"]
    assert [each["metadata"]["name"] for each in found] == ["conformance-coder"]
    moved = wanted(path, ready=False)
    moved["metadata"]["labels"]["app"] = "moved"
    patch = difference(stored, moved)
    assert patch is not None
    assert difference(said(node, "PATCH", own, patch), moved) is None
    overtaken = node.call("PATCH", own, patch, record=False)
    assert (overtaken.status_code, overtaken.json()["reason"]) == (409, "Conflict")
    said(node, "DELETE", own)


def test_the_service_of_somebody_else_is_out_of_reach(server: ApiServer, node: ApiServer) -> None:
    """Neither read by name, where names are granted, nor changed, nor deleted."""
    own = f"{KUBE_SERVICES}/conformance-shop"
    server.client.delete(own)
    server.made_paths.append(own)
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "conformance-shop"}}
    said(server, "POST", KUBE_SERVICES, body | {"spec": {"ports": [{"port": 80}], "selector": {"app": "x"}}})
    marks = wanted(KUBE_SERVICES, ready=True)["metadata"]["labels"]
    for method, change in (("PATCH", {"metadata": {"labels": marks}}), ("DELETE", None)):
        reply = node.call(method, own, change, record=False)
        assert (reply.status_code, reply.json()["reason"]) == (403, "Forbidden"), reply.text
    if has_accounts(server):
        assert node.call("GET", own, record=False).status_code == 403
    assert said(server, "GET", own)["spec"]["selector"] == {"app": "x"}

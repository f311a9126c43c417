"""A context beyond what the model was trained for, on each runtime that can be told to stretch it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from journeyman.core.worker_specs import model_server_spec
from journeyman.ports import Endpoint
from tests.contracts.test_runtimes import KEY, PYTHON, Servers
from tests.support.runtimes import Installed, installed_runtime
from tests.support.tiny_gguf import CONTEXT

pytestmark = pytest.mark.slow


@pytest.fixture(params=["native", "llama-server"])
def servers(
    request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Servers]:
    servers = Servers(tmp_path / "workers", installed_runtime(request.param, tmp_path_factory))
    yield servers
    for record in servers.workers.known():
        servers.stop(record)


def context_of(endpoint: Endpoint) -> int:
    """Of one slot, as the server itself says."""
    headers = {"Authorization": f"Bearer {KEY.decode()}"}
    reply = httpx.get(endpoint.base_url.removesuffix("/v1") + "/props", headers=headers)
    return int(reply.json()["default_generation_settings"]["n_ctx"])


def serve(servers: Servers, installed: Installed, **options: object) -> Endpoint:
    wanted = replace(installed.config(), parallel=1, context_tokens=2 * CONTEXT)
    spec, files = model_server_spec(replace(wanted, **options), KEY, PYTHON)  # type: ignore[arg-type]
    return servers.proven(servers.workers.start(f"server-{len(servers.workers.known())}", spec, files))


def test_a_context_is_stretched_where_that_is_asked_for(servers: Servers) -> None:
    """It is cut to what the model was trained for, but for where people stretch it; both generate."""
    assert context_of(serve(servers, servers.installed)) == CONTEXT
    sizes = {"batch_tokens": 256, "micro_batch_tokens": 64, "kv_offload": False}
    rope = {"rope_scaling": "yarn", "rope_scale": 2.0, "rope_original_tokens": CONTEXT}
    assert context_of(serve(servers, servers.installed, **sizes, **rope)) == 2 * CONTEXT

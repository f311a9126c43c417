"""What the native server makes of models: a real one, and the tools that a chat template has a place for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.adapters.model_reading import header_of
from journeyman.core.model_facts import facts_of
from journeyman.core.worker_specs import model_server_spec
from journeyman.ports import Endpoint
from tests.contracts.test_runtimes import KEY, PYTHON, Servers
from tests.support.runtimes import installed_runtime
from tests.support.tiny_gguf import TEMPLATE, TEMPLATE_WITH_TOOLS, write_tiny_gguf

pytestmark = pytest.mark.slow

TOOL = {
    "type": "function",
    "function": {
        "name": "tell_weather",
        "description": "Tells the weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}},
    },
}


@pytest.fixture
def servers(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(tmp_path / "workers", installed_runtime("native", tmp_path_factory))
    yield made
    for record in made.workers.known():
        made.stop(record, grace_seconds=5)


def answer(endpoint: Endpoint, question: str, **more: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": question}], "temperature": 0, **more}
    reply = httpx.post(
        f"{endpoint.base_url}/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {endpoint.api_key.decode()}"},
        timeout=60,
        trust_env=False,
    )
    found: dict[str, Any] = reply.raise_for_status().json()
    return found


def hears_of_tools(endpoint: Endpoint) -> bool:
    """Whether a request that offers a tool gives the model more to read."""
    read = [
        answer(endpoint, "Hi", max_tokens=1, **more)["usage"]["prompt_tokens"]
        for more in ({}, {"tools": [TOOL]})
    ]
    return bool(read[1] > read[0])


def test_a_real_model_answers_sensibly_and_its_server_ends_cleanly(
    servers: Servers, real_model: Path
) -> None:
    """Loaded, templated and sampled as it was trained, it knows a colour; SIGTERM ends it with 0."""
    record = servers.start(real_model)
    endpoint = servers.proven(record)
    (choice,) = answer(endpoint, "Name three primary colours.", max_tokens=60)["choices"]
    assert "blue" in choice["message"]["content"].lower()
    # The file says that it has no place for tools, and the server agrees.
    assert hears_of_tools(endpoint) is facts_of([header_of(real_model)]).supports_tools is False
    ended = servers.stop(record)
    assert ended is not None
    assert ended.code == 0


@pytest.mark.parametrize(("template", "supports"), [(TEMPLATE, False), (TEMPLATE_WITH_TOOLS, True)])
def test_the_header_tells_whether_a_model_hears_of_tools(
    servers: Servers, tmp_path: Path, template: str, *, supports: bool
) -> None:
    """What we read in the chat template is what the server does with it."""
    model = tmp_path / "model.gguf"
    write_tiny_gguf(model, template)
    assert facts_of([header_of(model)]).supports_tools is supports
    assert hears_of_tools(servers.proven(servers.start(model))) is supports


def test_no_slot_has_a_longer_context_than_its_model_was_trained_for(
    servers: Servers, tiny_model: Path
) -> None:
    """The server cuts what is asked for, which is why we promise no more than that."""
    trained = facts_of([header_of(tiny_model)]).context_tokens
    config = replace(servers.installed.config(tiny_model), context_tokens=2 * trained)
    spec, files = model_server_spec(config, KEY, PYTHON)
    endpoint = servers.proven(servers.workers.start("long", spec, files))
    slots = httpx.get(
        f"{endpoint.base_url.removesuffix('/v1')}/slots",
        headers={"Authorization": f"Bearer {KEY.decode()}"},
        timeout=60,
        trust_env=False,
    )
    assert {slot["n_ctx"] for slot in slots.json()} == {trained}

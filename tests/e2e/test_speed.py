"""How fast a model is, from its server to the control plane: real agent, plane, proxy and server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import AgentProcess, agent
from tests.support.plane import FOREMAN, RunningPlane, running_plane
from tests.support.proxy_clients import StreamingClient, is_whole
from tests.support.tiny_gguf import TEMPLATE_WITH_TOOLS, write_tiny_gguf
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

NOWHERE = "http://127.0.0.1:9"


def shown(running: AgentProcess) -> dict[str, Any]:
    (model,) = running.status()["models"]
    assert isinstance(model, dict)
    return model


def speed_of_node(plane: RunningPlane, name: str) -> int:
    with plane.client() as client:
        node = client.get(f"{FOREMAN}/fleetnodes/{name}").json()
    return int(node.get("status", {}).get("capability", {}).get("tokensPerSecond", 0))


def annotation_of_node(plane: RunningPlane, name: str) -> Any:
    with plane.client() as client:
        node = client.get(f"{FOREMAN}/fleetnodes/{name}").json()
    return json.loads(node["metadata"]["annotations"].get("journeyman.dev/models", "{}"))


def test_a_speed_is_measured_once_and_told(tmp_path: Path, tiny_model: Path) -> None:
    """The status and the FleetNode have it, streams add their mean, and the next agent asks nothing."""
    options = {"model_speed_idle_seconds": "0.1"}
    with (
        running_plane(tmp_path) as plane,
        agent(tmp_path, plane.url, plane.token_file, models=(str(tiny_model),), options=options) as running,
    ):
        running.until_serving()
        eventually(lambda: shown(running)["tokensPerSecond"], within_seconds=60)
        measured = shown(running)["tokensPerSecond"]
        eventually(lambda: shown(running)["tokensPerSecondAt2kReason"], within_seconds=60)
        assert "below" in shown(running)["tokensPerSecondAt2kReason"]
        assert (shown(running)["tokensPerSecondAt2k"], shown(running)["supportsTools"]) == (None, False)
        told = {"tiny": {"tokensPerSecond": measured, "supportsTools": False}}
        eventually(lambda: annotation_of_node(plane, running.name) == told, within_seconds=60)
        eventually(lambda: speed_of_node(plane, running.name) == max(1, round(measured)), within_seconds=60)

        assert shown(running)["sustainedTokensPerSecond"] is None
        eventually(lambda: running.status()["proxy"]["phase"] == "ready", within_seconds=60)
        proxy = running.status()["proxy"]
        client = StreamingClient(proxy["baseUrl"], Path(proxy["keyFile"]).read_text().strip())
        assert is_whole(asyncio.run(client.read_all(50)))
        eventually(lambda: shown(running)["sustainedTokensPerSecond"], within_seconds=60)
        # Known to the agent from then on, and so told with the next heartbeat.
        eventually(
            lambda: "sustainedTokensPerSecond" in annotation_of_node(plane, running.name)["tiny"],
            within_seconds=60,
        )

        running.kill()
        running.start().until_serving()
        assert shown(running)["tokensPerSecond"] == measured
        assert shown(running)["supportsTools"] is False
        assert running.log().count("model_measured") == 2


def test_a_model_with_tools_and_a_long_context_is_told_as_such(tmp_path: Path) -> None:
    """Both come from requests that its server has answered, and are there in the next agent's status."""
    write_tiny_gguf(tmp_path / "able.gguf", TEMPLATE_WITH_TOOLS, 8192)
    options = {"model_speed_idle_seconds": "0.1", "model_context_tokens": "4096"}
    (tmp_path / "token").write_text("none")
    models = (str(tmp_path / "able.gguf"),)
    with agent(tmp_path, NOWHERE, tmp_path / "token", models=models, options=options) as running:
        eventually(lambda: shown(running)["tokensPerSecondAt2k"], within_seconds=60)
        before = shown(running)
        assert before["supportsTools"] is True
        running.kill()
        running.start().until_serving()
        for known in ("tokensPerSecond", "tokensPerSecondAt2k", "supportsTools"):
            assert shown(running)[known] == before[known]

"""Preflight tells the truth about permissions, and how to keep others' releases away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.support.joined import ask_to_join, join_token, new_credential
from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, running_plane
from tests.support.services import service_object

pytestmark = pytest.mark.slow
RELEASES = f"{FOREMAN}/agentreleases"
SERVING = "/apis/inference.llmkube.dev/v1alpha1/namespaces/default"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    with running_plane(tmp_path) as running:
        yield running


def preflight(
    plane: RunningPlane,
    tmp_path: Path,
    *,
    node: str,
    serves: bool = False,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> tuple[int, dict[str, Any]]:
    """What the command says with the credential of the node `desk`."""
    named = {f"JOURNEYMAN_{name.upper()}": value for name, value in settings.items()}
    words = ["preflight", "--server", plane.url, "--token-file", str(tmp_path / "token"), "--json"]
    words += ["--state-root", str(tmp_path / "root"), "--node-name", node, "--node-labels", "zone=attic"]
    environ = os.environ | {"JOURNEYMAN_FLEET_SERVICES": str(serves)}
    done = subprocess.run(
        [sys.executable, "-m", "journeyman", *words],
        env=environ | named,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_preflight_names_what_is_missing_and_what_would_select_us(
    plane: RunningPlane, tmp_path: Path
) -> None:
    """A node's own credential has all it needs; a release of others is named until its patch is applied."""
    credential = new_credential("desk")
    assert ask_to_join(plane, join_token(plane), "desk", credential=credential).is_success
    (tmp_path / "token").write_text(credential)
    code, found = preflight(plane, tmp_path, node="desk")
    assert (code, found["missing"], found["releases"]) == (0, [], [])
    assert not any("inferenceservices" in each for each in found["allowed"])

    code, found = preflight(plane, tmp_path, node="desk", serves=True)
    assert (code, found["missing"]) == (0, [])
    for asked in ("patch inferenceservices/status in default", "watch models in default"):
        assert asked in found["allowed"]

    code, found = preflight(plane, tmp_path, node="peer")
    assert code == 1
    assert "patch fleetnodes/status peer" in found["missing"]
    assert "create fleetnodes" in found["allowed"]

    selectors = {
        "everyone": {},
        "ours": {"matchLabels": {"journeyman.dev/agent": "true"}},
        "attics": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["attic"]}]},
        "cellars": {"matchLabels": {"zone": "cellar"}},
    }
    with plane.client() as admin:
        for name, selector in selectors.items():
            spec = {"agentKind": "foreman-agent", "version": "9.0.0", "selector": selector}
            admin.post(RELEASES, json={"metadata": {"name": name}, "spec": spec}).raise_for_status()
        code, found = preflight(plane, tmp_path, node="desk")
        assert (code, [each["name"] for each in found["releases"]]) == (1, ["attics", "everyone"])
        for each in found["releases"]:
            path = f"{RELEASES}/{each['name']}"
            admin.patch(path, json=each["patch"], headers=MERGE_PATCH).raise_for_status()
        kept = admin.get(f"{RELEASES}/attics").json()["spec"]["selector"]["matchExpressions"]
        assert {"key": "zone", "operator": "In", "values": ["attic"]} in kept
    assert preflight(plane, tmp_path, node="desk")[0] == 0


def test_preflight_asks_for_registering_where_that_is_wanted(plane: RunningPlane, tmp_path: Path) -> None:
    """By the names of the services that this node serves; not at all for a host that is not reachable."""
    credential = new_credential("desk")
    assert ask_to_join(plane, join_token(plane), "desk", credential=credential).is_success
    (tmp_path / "token").write_text(credential)
    _, found = preflight(plane, tmp_path, node="desk")
    assert found["services"] == []
    assert not [line for line in found["allowed"] if "endpointslices" in line]
    with plane.client() as admin:
        for name, node in (("chat.large", "desk"), ("other", "peer")):
            body = service_object(name, node)
            admin.post(f"{SERVING}/inferenceservices", json=body).raise_for_status()
    wanted = {
        "fleet_services": "true",
        "fleet_service_allow": "default/coder,default/*",
        "proxy_reach_address": "10.0.0.7",
        "proxy_reach_sources": "10.0.0.0/8",
    }
    code, found = preflight(plane, tmp_path, node="desk", settings=wanted)
    assert found["services"] == ["default/chat.large", "default/coder"]
    asked = {"patch endpointslices chat-large in default", "delete services coder in default"}
    assert asked | {"create services in default", "list endpointslices in default"} <= set(found["allowed"])
    assert (code, found["missing"]) == (0, [])

"""Preflight tells the truth about permissions, and how to keep others' releases away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.joined import ask_to_join, join_token, new_credential
from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, running_plane

pytestmark = pytest.mark.slow
RELEASES = f"{FOREMAN}/agentreleases"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    with running_plane(tmp_path) as running:
        yield running


def preflight(
    plane: RunningPlane, tmp_path: Path, *, node: str, serves: bool = False
) -> tuple[int, dict[str, Any]]:
    """What the command says with the credential of the node `desk`."""
    words = ["preflight", "--server", plane.url, "--token-file", str(tmp_path / "token"), "--json"]
    words += ["--state-root", str(tmp_path / "root"), "--node-name", node, "--node-labels", "zone=attic"]
    environ = os.environ | {"JOURNEYMAN_FLEET_SERVICES": str(serves)}
    done = subprocess.run(
        [sys.executable, "-m", "journeyman", *words], capture_output=True, text=True, check=False, env=environ
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

"""A machine joins a plane by a token, works there as itself alone, and leaves nothing behind."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.core.ca_pin import pin_of
from journeyman.errors import (
    AlreadyRunningError,
    CertificateError,
    ConfigError,
    HostError,
    JourneymanError,
    NameTakenError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.joining import Joined, JoinRequest, join, leave
from journeyman.model.meta import format_time
from journeyman.settings import Settings, load_settings
from journeyman.withdrawing import namespaces_in, remember
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.node import NodeFile
from tests.support.agents import agent, roomy
from tests.support.plane import FOREMAN, MERGE_PATCH, RunningPlane, agentic_task, fleet_node, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
UNKNOWN = f"join.0000000000.{'x' * 43}"
NODES, TASKS = f"{FOREMAN}/fleetnodes", f"{FOREMAN}/namespaces/default/agentictasks"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlane]:
    """A plane with TLS, for all tests of this file."""
    with running_plane(tmp_path_factory.mktemp("plane"), tls=True) as running:
        yield running


@pytest.fixture
def root(tmp_path: Path) -> StateRoot:
    """A state root in which a person has set something already."""
    return StateRoot(roomy(tmp_path / "state root"))


def admin(plane: RunningPlane) -> Any:
    """The admin's client, which trusts the CA of the plane."""
    return plane.client(verify=ssl.create_default_context(cafile=str(plane.data_dir / "ca.crt")))


def minted(plane: RunningPlane, **asked: Any) -> str:
    """A join token."""
    with admin(plane) as client:
        return str(client.post("/join-tokens", json=asked).json()["token"])


def beats(client: Any, name: str) -> bool:
    reply = client.get(f"{NODES}/{name}")
    return reply.is_success and bool(reply.json().get("status", {}).get("agentVersion"))


def settings_of(root: StateRoot, **flags: Any) -> Settings:
    return load_settings({"state_root": root.path, **flags}, {}).settings


def joined(plane: RunningPlane, root: StateRoot, name: str, **given: Any) -> Joined:
    """What `journeyman join` does, with a fresh token and the right hash where nothing else is given."""
    token = root.path.parent / "join.token"
    token.write_text(given.pop("token", "") or minted(plane))
    given.setdefault("ca_hash", pin_of((plane.data_dir / "ca.crt").read_text()))
    server = given.pop("server", plane.url)
    request = JoinRequest(settings_of(root), server, token, name=name, **given)
    return join(request, lambda _: None)


def test_a_join_writes_what_agent_and_updater_need(plane: RunningPlane, root: StateRoot) -> None:
    """Credential 0600, CA, release key, settings and node.json; what a person has set stays."""
    before = root.config_file.read_text()
    done = joined(plane, root, "desk", labels={"zone": "attic"}, roles=("worker",), namespaces=("fleet",))
    assert (done.name, done.kind) == ("desk", "plane")
    assert root.token_file.stat().st_mode & 0o777 == 0o600
    assert root.token_file.read_text().startswith("node.desk.")
    assert root.ca_file.read_bytes() == (plane.data_dir / "ca.crt").read_bytes()
    assert (root.keys / "plane.pub").read_bytes() == (plane.data_dir / "release.pub").read_bytes()
    assert root.config_file.read_text().endswith(before)
    settings = settings_of(root)
    assert (settings.server, settings.node_name, settings.namespace) == (plane.url, "desk", "fleet")
    assert (settings.node_labels, settings.roles) == ({"zone": "attic"}, ("worker",))
    assert settings.updates_source == "agentrelease"
    node = NodeFile.from_json(root.node_file.read_bytes())
    assert node == NodeFile("desk", plane.url, ca_file=str(root.ca_file), token_file=str(root.token_file))
    assert not list(root.path.glob("*.joining"))


def test_a_plane_signs_no_certificates(plane: RunningPlane, root: StateRoot) -> None:
    """`--csr` on an embedded plane says so, and which way is the right one there; nothing is installed."""
    with pytest.raises(CertificateError, match="signs no certificates") as refused:
        joined(plane, root, "desk", token=plane.token, by_certificate=True)
    assert "journeyman plane join-token" in refused.value.advice
    assert not root.node_file.exists()


def test_an_agent_that_has_joined_works_and_leaves(plane: RunningPlane, root: StateRoot) -> None:
    """It beats with its own credential; a leave stops it, and takes node, credential and files."""
    joined(plane, root, "attic")
    credential = root.token_file.read_text().strip()
    with agent(root.path.parent, "", Path(), name=root.path.name), admin(plane) as client:
        eventually(lambda: beats(client, "attic"), within_seconds=30)
        left = leave(settings_of(root), lambda _: None, force=False)
        assert (left.name, left.node) == ("attic", "deleted")
        assert client.get(f"{NODES}/attic").status_code == 404
        refused = client.get("/version", headers={"Authorization": f"Bearer {credential}"})
        assert refused.status_code == 401
    for path in (root.token_file, root.ca_file, root.node_file, root.node_memory, root.keys / "plane.pub"):
        assert not path.exists()
    assert settings_of(root).server is None
    assert root.config_file.exists(), "a person's own settings stay"


def test_a_leave_hands_back_the_tasks(plane: RunningPlane, root: StateRoot) -> None:
    """What was on the node is Pending again, although no agent ran."""
    joined(plane, root, "cellar")
    beat = {"phase": "Draining", "lastHeartbeatTime": format_time(datetime.now(UTC))}
    with admin(plane) as client:
        client.post(NODES, json=fleet_node("cellar")).raise_for_status()
        client.patch(f"{NODES}/cellar/status", json={"status": beat}, headers=MERGE_PATCH).raise_for_status()
        client.post(TASKS, json=agentic_task("held")).raise_for_status()
        running = {"phase": "Running", "assignedNode": "cellar", "claimedAt": beat["lastHeartbeatTime"]}
        client.patch(f"{TASKS}/held/status", json={"status": running}, headers=MERGE_PATCH).raise_for_status()
        left = leave(settings_of(root), lambda _: None, force=False)
        assert left.tasks == ["default/held"]
        status = client.get(f"{TASKS}/held").json()["status"]
        assert (status["phase"], status.get("assignedNode")) == ("Pending", None)
        client.delete(f"{TASKS}/held").raise_for_status()


def test_a_node_takes_the_tasks_of_several_namespaces(plane: RunningPlane, root: StateRoot) -> None:
    """A join names them, the settings hold them, and a leave hands back what lies in any of them."""
    joined(plane, root, "loft", namespaces=("default", "lab"))
    settings = settings_of(root)
    assert (settings.namespace, settings.namespaces_of_tasks) == ("default", ("default", "lab"))
    lab = TASKS.replace("default", "lab")
    beat = {"phase": "Draining", "lastHeartbeatTime": format_time(datetime.now(UTC))}
    with admin(plane) as client:
        client.post("/api/v1/namespaces", json={"metadata": {"name": "lab"}}).raise_for_status()
        client.post(NODES, json=fleet_node("loft")).raise_for_status()
        client.patch(f"{NODES}/loft/status", json={"status": beat}, headers=MERGE_PATCH).raise_for_status()
        client.post(lab, json=agentic_task("held")).raise_for_status()
        running = {"phase": "Running", "assignedNode": "loft", "claimedAt": beat["lastHeartbeatTime"]}
        client.patch(f"{lab}/held/status", json={"status": running}, headers=MERGE_PATCH).raise_for_status()
        assert leave(settings, lambda _: None, force=False).tasks == ["lab/held"]
        client.delete("/api/v1/namespaces/lab").raise_for_status()


def test_a_name_that_is_no_namespace_joins_nothing(plane: RunningPlane, root: StateRoot) -> None:
    """A wrong `--namespace` is said before the token is spent."""
    token = minted(plane)
    with pytest.raises(ConfigError, match="No Name"):
        joined(plane, root, "loft", token=token, namespaces=("default", "No Name"))
    assert joined(plane, root, "loft", token=token).name == "loft"
    leave(settings_of(root), lambda _: None, force=False)


def test_a_leave_takes_registrations_back(plane: RunningPlane, root: StateRoot) -> None:
    """What the agent has told the cluster of its services goes, and that of others stays."""
    joined(plane, root, "barn")
    remember(JsonFile(root.registrations), ["default"])
    services = "/api/v1/namespaces/default/services"
    with admin(plane) as client:
        for name, node in (("coder", "barn"), ("of-peer", "peer")):
            labels = {"llmkube.ai/managed-by": "metal-agent", "journeyman.dev/node": node}
            body = {"metadata": {"name": name, "labels": labels}, "spec": {}}
            client.post(services, json=body).raise_for_status()
        left = leave(settings_of(root), lambda _: None, force=False)
        assert left.registrations == ["Service default/coder"]
        assert [each["metadata"]["name"] for each in client.get(services).json()["items"]] == ["of-peer"]
    assert namespaces_in(JsonFile(root.registrations)) == set()


def test_a_leave_keeps_results_that_nobody_has(plane: RunningPlane, root: StateRoot) -> None:
    """With undelivered results nothing is given back unless it is forced, and they stay on disk."""
    joined(plane, root, "shed")
    root.outbox.mkdir(parents=True, exist_ok=True)
    (root.outbox / "result.json").write_text("{}")
    with pytest.raises(HostError, match="1 results are not delivered"):
        leave(settings_of(root), lambda _: None, force=False)
    assert root.token_file.exists()
    leave(settings_of(root), lambda _: None, force=True)
    assert (root.outbox / "result.json").exists()


def test_a_host_that_has_not_joined_cannot_leave(root: StateRoot) -> None:
    """A leave without a join says so."""
    with pytest.raises(ConfigError, match="no join is in force"):
        leave(settings_of(root), lambda _: None, force=False)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        pytest.param({"ca_hash": "ab" * 32}, ConfigError, "has the hash", id="wrong hash"),
        pytest.param({"ca_hash": ""}, ConfigError, "nobody vouches for the CA", id="no hash"),
        pytest.param({"ca_hash": "nonsense"}, JourneymanError, "is no SHA-256", id="no SHA-256"),
        pytest.param({"token": UNKNOWN}, UnauthorizedError, "wrong, or was spent", id="token"),
        pytest.param({"ca_file": Path("/nowhere/ca.crt")}, ConfigError, "cannot be read", id="no CA file"),
        pytest.param(
            {"server": "https://127.0.0.1:9"}, UnreachableError, "connection refused", id="no plane"
        ),
    ],
)
def test_a_join_that_fails_leaves_no_credential(
    plane: RunningPlane, root: StateRoot, given: dict[str, Any], error: type[JourneymanError], says: str
) -> None:
    """Each failure has its sentence, and neither settings nor a usable credential are left."""
    before = root.config_file.read_text()
    with pytest.raises(error, match=says):
        joined(plane, root, "porch", **given)
    assert root.config_file.read_text() == before
    assert not root.token_file.exists()
    assert not root.node_file.exists()


def test_no_token_goes_to_a_server_that_is_not_proven(plane: RunningPlane, root: StateRoot) -> None:
    """A token that was used against a wrong hash is not spent: it never left this machine."""
    token = minted(plane)
    with pytest.raises(ConfigError):
        joined(plane, root, "porch", token=token, ca_hash="ab" * 32)
    assert joined(plane, root, "porch", token=token).name == "porch"


def test_a_name_that_beats_elsewhere_is_refused(plane: RunningPlane, root: StateRoot) -> None:
    """Nobody joins under the name of another agent whose heartbeat is fresh."""
    beat = {"phase": "Ready", "lastHeartbeatTime": format_time(datetime.now(UTC))}
    with admin(plane) as client:
        client.post(NODES, json=fleet_node("loud")).raise_for_status()
        client.patch(f"{NODES}/loud/status", json={"status": beat}, headers=MERGE_PATCH).raise_for_status()
    with pytest.raises(NameTakenError, match="another agent beats as FleetNode loud"):
        joined(plane, root, "loud")


def test_a_bearer_token_that_was_handed_over_is_proven_first(plane: RunningPlane, root: StateRoot) -> None:
    """A token that is no join token is a credential: it is tried, copied 0600, and updates stay off."""
    done = joined(plane, root, "guest", token=plane.token)
    assert done.kind == "cluster"
    assert root.token_file.stat().st_mode & 0o777 == 0o600
    assert settings_of(root).updates_source == "none"
    with pytest.raises(UnauthorizedError):
        joined(plane, root, "guest", token="wrong")
    assert root.token_file.read_text().strip() == plane.token


def test_a_kubeconfig_that_was_handed_over_is_copied(plane: RunningPlane, root: StateRoot) -> None:
    """One context is copied 0600 with all it needs, and a leave, without it, hands the node back."""
    original = root.path.parent / "original"
    original.write_text((plane.data_dir / "admin.kubeconfig").read_text())
    join(JoinRequest(settings_of(root, kubeconfig=original), "", None, name="handed"), lambda _: None)
    original.unlink()
    assert root.kubeconfig.stat().st_mode & 0o777 == 0o600
    node = NodeFile.from_json(root.node_file.read_bytes())
    assert (node.server, node.token_file) == (plane.url, str(root.credentials / "token"))
    with agent(root.path.parent, "", Path(), name=root.path.name), admin(plane) as client:
        eventually(lambda: beats(client, "handed"), within_seconds=30)
        assert leave(settings_of(root), lambda _: None, force=False).node == "deleted"
        assert client.get(f"{NODES}/handed").status_code == 404
    assert not root.kubeconfig.exists()
    assert not root.credentials.exists()


def test_a_setting_of_a_person_is_not_overridden(plane: RunningPlane, root: StateRoot) -> None:
    """Where a person's file sets what the join would set, the join names file and line, and stops."""
    root.config_file.write_text('node_name = "mine"\n')
    with pytest.raises(ConfigError, match=r"node_name \(.*config.toml:1\) is set already"):
        joined(plane, root, "yours")


def test_a_second_plane_needs_a_leave(plane: RunningPlane, root: StateRoot) -> None:
    """A host that has joined one plane joins no other one."""
    joined(plane, root, "faithful")
    with pytest.raises(ConfigError, match=r"has joined .* already"):
        joined(plane, root, "faithful", server=plane.url.replace("127.0.0.1", "localhost"))


def test_a_running_agent_is_not_joined_under(plane: RunningPlane, root: StateRoot, tmp_path: Path) -> None:
    """While an agent runs on the state root nothing of it is changed."""
    joined(plane, root, "busy")
    with agent(tmp_path, "", Path(), name=root.path.name), pytest.raises(AlreadyRunningError):
        joined(plane, root, "busy", token=minted(plane, node="busy"))


def test_the_commands_join_and_leave(plane: RunningPlane, root: StateRoot, tmp_path: Path) -> None:
    """The token of one command is the input of the next, and no secret is printed by `join` or `leave`."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "journeyman", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    data = str(plane.data_dir)
    invitation = json.loads(run("plane", "join-token", "--data-dir", data, "--name", "spoken", "--json"))
    assert invitation["command"].startswith(f"journeyman join {plane.url} --token-file join.token --ca-hash")
    (tmp_path / "join.token").write_text(invitation["token"])
    where = ("--state-root", str(root.path))
    words = ("join", plane.url, "--token-file", str(tmp_path / "join.token"), *where)
    said = json.loads(run(*words, "--ca-hash", invitation["ca_hash"], "--name", "spoken", "--json"))
    assert said["name"] == "spoken"
    secret = root.token_file.read_text().strip().rpartition(".")[2]
    assert secret not in json.dumps(said)
    run("plane", "revoke", "spoken", "--data-dir", data)
    assert json.loads(run("leave", *where, "--force", "--json"))["node"] == "unknown"

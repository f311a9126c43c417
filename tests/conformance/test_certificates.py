"""Nodes that speak by client certificates: joined, approved by kubectl, renewed by the agent, and left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from journeyman.model.meta import parse_time
from journeyman_updater.adapters.node_api import NodeApi
from journeyman_updater.contract import StateRoot
from tests.support.agents import FAST, AgentProcess, roomy
from tests.support.certificate_clusters import Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
LONG = timedelta(hours=1)
SECONDS = 60.0


class Machine:
    """A machine that is to become a node."""

    def __init__(self, cluster: Cluster, folder: Path, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.root = StateRoot(roomy(folder / name))
        self.token_file = folder / "bootstrap.token"
        self.is_prepared_as(name)

    def is_prepared_as(self, name: str) -> None:
        """The administrator gives a node of that name its rights, and this machine a token."""
        self.token_file.write_text(self.cluster.prepare(name))

    def join(self, *, wait: str = "60s") -> subprocess.Popen[str]:
        words = ["join", self.cluster.url, "--csr", "--token-file", str(self.token_file), "--wait", wait]
        words += ["--ca-file", str(self.cluster.ca_file), "--name", self.name, "--json"]
        return self._started(*words)

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and all that a command printed."""
        process = self._started(*words)
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out + err

    def _started(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "journeyman", *words, "--state-root", str(self.root.path)]
        environ = {**os.environ, **FAST, "JOURNEYMAN_CERTIFICATE_POLL_SECONDS": "0.1"}
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
        )

    def asked(self) -> list[str]:
        """Names of its requests, the oldest first."""
        found = [each for each in self.cluster.requests() if self.name in each["metadata"]["name"]]
        return [
            each["metadata"]["name"]
            for each in sorted(found, key=lambda one: one["metadata"].get("creationTimestamp", ""))
        ]

    def joined(self, life: timedelta) -> None:
        """Joins with a certificate of that life."""
        joining = self.join()
        eventually(self.asked, within_seconds=SECONDS, every_seconds=0.1)
        (name,) = self.asked()
        self.cluster.approve(name)
        self.cluster.sign(name, life)
        _, said = joining.communicate(timeout=SECONDS)
        assert joining.returncode == 0, said

    def agent(self, **options: str) -> AgentProcess:
        options = {"token_check_seconds": "0.2", **options}
        return AgentProcess(self.root, "", Path(), self.name, options=options)

    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.root.certificate_file.read_bytes())

    def last_beat(self) -> datetime | None:
        status = self.cluster.node(self.name).get("status", {})
        text = status.get("lastHeartbeatTime")
        return parse_time(text) if text else None

    def told(self) -> str:
        """Status and reason of the condition about the credential."""
        conditions = self.cluster.node(self.name).get("status", {}).get("conditions", [])
        return next(
            (
                f"{each['status']} {each['reason']}"
                for each in conditions
                if each["type"] == "CredentialExpiring"
            ),
            "",
        )


@pytest.fixture
def machine(cluster: Cluster, request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    name = f"csr-{re.sub('[^a-z]+', '-', request.node.originalname)[5:30].strip('-')}"
    return Machine(cluster, tmp_path, name)


def test_killed_and_repeated_then_approved(machine: Machine) -> None:
    """Killed while it waits, a join goes on with its request; what kubectl approved and a signer signed is
    installed, and does all that an agent needs.
    """
    joining = machine.join()
    eventually(machine.asked, within_seconds=SECONDS, every_seconds=0.1)
    joining.kill()
    joining.communicate(timeout=SECONDS)
    assert not machine.root.node_file.exists()

    (name,) = machine.asked()
    again = machine.join()
    machine.cluster.approve(name)
    assert again.stderr is not None
    assert any(f"kubectl certificate approve {name}" in line for line in iter(again.stderr.readline, ""))
    machine.cluster.sign(name, LONG)
    out, said = again.communicate(timeout=SECONDS)
    assert again.returncode == 0, said
    assert json.loads(out)["kind"] == "cluster"
    assert machine.asked() == [name]
    assert machine.root.certificate_file.stat().st_mode & 0o777 == 0o600
    assert not machine.root.token_file.exists()
    assert NodeApi(machine.root.node_file).is_reachable()


def test_ctrl_c_is_no_end(machine: Machine) -> None:
    """Interrupted, it exits with 130 and has installed nothing; too late, with 79; then it goes on."""
    joining = machine.join()
    eventually(machine.asked, within_seconds=SECONDS, every_seconds=0.1)
    joining.send_signal(signal.SIGINT)
    joining.communicate(timeout=SECONDS)
    assert joining.returncode == 130
    late = machine.join(wait="1s")
    _, said = late.communicate(timeout=SECONDS)
    assert late.returncode == 79, said
    (name,) = machine.asked()
    assert f"kubectl certificate approve {name}" in said
    assert not machine.root.certificate_file.exists()
    machine.cluster.approve(name)
    machine.cluster.sign(name, LONG)
    last = machine.join()
    _, said = last.communicate(timeout=SECONDS)
    assert last.returncode == 0, said


def test_rights_that_come_later_cost_no_other_approval(machine: Machine) -> None:
    """A certificate without rights is 77 with the command that gives them; then the same one is installed."""
    machine.name = f"{machine.name}-2"
    joining = machine.join()
    eventually(machine.asked, within_seconds=SECONDS, every_seconds=0.1)
    (name,) = machine.asked()
    machine.cluster.approve(name)
    machine.cluster.sign(name, LONG)
    _, said = joining.communicate(timeout=SECONDS)
    assert joining.returncode == 77, said
    assert f"journeyman cluster manifests {machine.name} --credential certificate" in said
    assert not machine.root.certificate_file.exists()
    machine.is_prepared_as(machine.name)
    last = machine.join()
    _, said = last.communicate(timeout=SECONDS)
    assert last.returncode == 0, said
    assert machine.asked() == [name]


def test_denied(machine: Machine) -> None:
    """What kubectl denied ends the join with 77 and says how it could be asked for again."""
    joining = machine.join()
    eventually(machine.asked, within_seconds=SECONDS, every_seconds=0.1)
    (name,) = machine.asked()
    machine.cluster.deny(name)
    _, said = joining.communicate(timeout=SECONDS)
    assert joining.returncode == 77, said
    assert f"kubectl delete csr {name}" in said


def test_an_agent_renews_it_and_beats_on(machine: Machine) -> None:
    """It asks with its present certificate, says what it waits for, swaps, outlives the old, and leaves."""
    machine.joined(timedelta(seconds=30))
    old = machine.certificate()
    code, said = machine.run("preflight")
    assert code == 0, said
    assert "ok       create certificatesigningrequests" in said
    # Early, so that a slow host has time for it.
    agent = machine.agent(certificate_renewal_fraction="0.4").start()
    try:
        eventually(machine.last_beat, within_seconds=SECONDS, every_seconds=0.2)
        eventually(lambda: len(machine.asked()) == 2, within_seconds=SECONDS, every_seconds=0.2)
        eventually(
            lambda: machine.told() == "True AwaitingApproval", within_seconds=SECONDS, every_seconds=0.2
        )
        assert machine.certificate() == old
        renewal = max(
            (each for each in machine.cluster.requests() if each["metadata"]["name"] in machine.asked()),
            key=lambda each: each["spec"]["username"] == f"journeyman:node:{machine.name}",
        )
        assert renewal["spec"]["username"] == f"journeyman:node:{machine.name}"
        machine.cluster.approve(renewal["metadata"]["name"])
        machine.cluster.sign(renewal["metadata"]["name"], LONG)
        eventually(lambda: machine.certificate() != old, within_seconds=SECONDS, every_seconds=0.1)
        assert not machine.root.certificate_request.exists()
        over = old.not_valid_after_utc + timedelta(seconds=2)
        eventually(lambda: (machine.last_beat() or over) > over, within_seconds=SECONDS, every_seconds=0.5)
        eventually(lambda: machine.told() == "False Renewable", within_seconds=SECONDS, every_seconds=0.2)
        assert NodeApi(machine.root.node_file).is_reachable()
    finally:
        agent.stop()
    code, said = machine.run("leave", "--json")
    assert code == 0, said
    assert machine.cluster.node(machine.name) == {}
    assert not machine.root.certificate_file.exists()


def test_an_expired_certificate_says_to_join_again(machine: Machine) -> None:
    """After its end each command exits with 77 and says so; another join under the name heals it."""
    machine.joined(timedelta(seconds=6))
    first = machine.asked()
    end = machine.certificate().not_valid_after_utc
    eventually(lambda: datetime.now(UTC) > end + timedelta(seconds=1), within_seconds=SECONDS)
    code, said = machine.run("preflight")
    assert code == 77, said
    assert "expired" in said
    assert "journeyman join URL --csr" in said
    machine.is_prepared_as(machine.name)
    joining = machine.join()
    eventually(lambda: len(machine.asked()) == 2, within_seconds=SECONDS, every_seconds=0.1)
    (second,) = set(machine.asked()) - set(first)
    machine.cluster.approve(second)
    machine.cluster.sign(second, LONG)
    _, said = joining.communicate(timeout=SECONDS)
    assert joining.returncode == 0, said
    assert machine.run("preflight")[0] == 0


def test_a_certificate_is_good_for_its_own_node_alone(machine: Machine, cluster: Cluster) -> None:
    """With one node's certificate the FleetNode of another cannot be joined as one's own."""
    machine.joined(LONG)
    cluster.prepare("csr-peer")
    asked: Any = machine.run("preflight", "--node-name", "csr-peer")
    assert asked[0] == 1, asked
    assert "missing  patch fleetnodes/status csr-peer" in asked[1]

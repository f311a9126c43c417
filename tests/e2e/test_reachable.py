"""Being reachable, for real: a service of the fleet, asked from another machine by its registration."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.control import call
from journeyman.model.meta import parse_time
from journeyman_updater.contract import ExitCode
from tests.support.proxy_clients import is_whole
from tests.support.reachable_host import (
    NAME,
    PORT,
    SECONDS,
    SERVICE,
    SERVICES,
    SLICES,
    ReachableHost,
    reachable_host,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
LONG, SHORT = 400, 5


@pytest.fixture
def host(tmp_path: Path, tiny_model: Path) -> Iterator[ReachableHost]:
    """A host that serves a tiny model for its fleet, and is ready."""
    with reachable_host(tmp_path, model_parallel_slots="2") as made:
        made.serve(tiny_model)
        made.start()
        made.until_ready()
        yield made


def kubectl(host: ReachableHost, *words: str) -> Any:
    """What the real kubectl says."""
    program = str(Path(sys.executable).parent / "kubectl")
    command = [program, "--kubeconfig", str(host.plane.data_dir / "admin.kubeconfig"), *words, "-o", "json"]
    with host.home.inside():
        said = subprocess.run(
            command,
            env={"HOME": str(host.plane.data_dir), "PATH": os.defpath},
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(said.stdout)


def test_a_service_of_the_fleet_is_reached_through_its_registration(host: ReachableHost) -> None:
    """By the machine that may, with the key, at what the slice says; others get nothing, here or there."""
    found = kubectl(host, "get", "endpointslices", "-l", f"kubernetes.io/service-name={SERVICE}")
    (slice_,) = found["items"]
    (endpoint,), (port,) = slice_["endpoints"], slice_["ports"]
    assert (endpoint["addresses"], port["port"], port["name"]) == ([host.address], PORT, "http")
    heard = parse_time(slice_["metadata"]["annotations"]["llmkube.ai/agent-heartbeat"])
    assert abs((datetime.now(UTC) - heard).total_seconds()) < SECONDS
    service = kubectl(host, "get", "service", SERVICE)
    assert service["spec"]["ports"][0]["targetPort"] == PORT
    assert service["metadata"]["labels"]["llmkube.ai/managed-by"] == "metal-agent"
    assert is_whole(host.ask(SHORT).all())
    assert host.ask(SHORT, of=host.far).all() == b""
    status = host.agent.status()
    assert status["proxy"]["reachable"]
    assert status["proxy"]["reachableAt"] == f"{host.address}:{PORT}"
    (shown,) = status["registrations"]
    assert (shown["service"], shown["state"]) == (f"default/{SERVICE}", "ready")
    key = host.agent.root.reach_key_file.read_text().strip()
    assert key not in json.dumps(status) + host.agent.log()


def test_a_stream_from_elsewhere_survives_the_agent(host: ReachableHost) -> None:
    """`kill -9` of the agent in a stream: it goes on, new ones are served, the next agent registers on."""
    stream = host.ask(LONG).until_begun()
    host.agent.kill()
    assert is_whole(host.ask(SHORT).all())
    uid = (host.get(f"{SERVICES}/{SERVICE}") or {})["metadata"]["uid"]
    host.start()
    assert is_whole(host.ask(SHORT).all())
    assert is_whole(stream.all())
    eventually(lambda: host.agent.status()["registrations"], within_seconds=SECONDS)
    host.until_ready()
    assert (host.get(f"{SERVICES}/{SERVICE}") or {})["metadata"]["uid"] == uid


def test_registrations_follow_the_services_and_the_agent(host: ReachableHost) -> None:
    """Suspended they go, a planned stop takes the endpoint out of service, a restart leaves it there."""
    host.change(suspend=True)
    eventually(lambda: host.get(f"{SERVICES}/{SERVICE}") is None, within_seconds=SECONDS)
    assert host.is_ready() is None
    host.change(suspend=False)
    host.until_ready()
    service = host.get(f"{SERVICES}/{SERVICE}")
    call(host.agent.root, "stop", restart=True)
    assert host.agent.process is not None
    assert host.agent.process.wait(SECONDS) == ExitCode.RESTART
    assert host.is_ready()
    host.start()
    # As during an update, after which the next agent finds everything as it is.
    host.agent.root.pause_file.touch()
    assert host.agent.stop() == 0
    assert host.is_ready()
    host.agent.root.pause_file.unlink()
    host.start()
    assert host.agent.stop() == 0
    assert host.is_ready() is False
    assert host.get(f"{SERVICES}/{SERVICE}") == service
    host.start()
    host.until_ready()


def test_an_address_that_goes_takes_the_endpoint_out_of_service(host: ReachableHost) -> None:
    """As with a VPN that is switched off, and on again; the port need not be opened anew."""
    whole = f"{host.address}/24"
    host.home.ip("address", "delete", whole, "dev", "cable1")
    eventually(lambda: host.is_ready() is False, within_seconds=SECONDS)
    status = host.agent.status()
    assert "no address of this host any more" in status["proxy"]["whyNotReachable"]
    assert status["registrations"][0]["state"] == "notReady"
    host.home.ip("address", "add", whole, "dev", "cable1")
    host.until_ready()
    assert is_whole(host.ask(SHORT).all())


def test_another_configuration_hands_the_port_over_and_none_gives_it_back(host: ReachableHost) -> None:
    """A stream goes on while another proxy serves at the same address; without the setting nobody is left."""
    stream = host.ask(LONG).until_begun()
    host.agent.options["proxy_hold_seconds"] = "60"
    host.agent.stop()
    host.start()
    host.until_ready()
    assert is_whole(host.ask(SHORT).all())
    assert is_whole(stream.all())
    host.agent.stop()
    for name in ("proxy_reach_address", "proxy_reach_sources"):
        del host.agent.options[name]
    host.start()
    eventually(lambda: host.get(f"{SERVICES}/{SERVICE}") is None, within_seconds=SECONDS)
    assert host.get(f"{SLICES}/{SERVICE}") is None
    assert host.agent.status()["registrations"] == []
    with pytest.raises(OSError, match="refused"):
        host.ask(SHORT)


def test_what_is_wrong_is_told_by_status_and_doctor(host: ReachableHost, tmp_path: Path) -> None:
    """A Service of somebody else's stays as it is; the doctor says that it is in the way."""
    host.change(suspend=True)
    eventually(lambda: host.get(f"{SERVICES}/{SERVICE}") is None, within_seconds=SECONDS)
    with host.home.inside(), host.plane.client() as admin:
        foreign = {"metadata": {"name": SERVICE}, "spec": {"selector": {"app": "x"}}}
        admin.post(SERVICES, json=foreign).raise_for_status()
    before = host.get(f"{SERVICES}/{SERVICE}")
    host.change(suspend=False)
    eventually(lambda: _states(host) == ["foreign"], within_seconds=SECONDS)
    assert host.get(f"{SERVICES}/{SERVICE}") == before
    assert host.is_ready() is None
    found = _doctor(host, tmp_path)
    assert [each["is_well"] for each in found if each["name"] == "reach"] == [True, False]
    assert any("somebody else's" in each["finding"] for each in found)


def _states(host: ReachableHost) -> list[str]:
    return [each["state"] for each in host.agent.status()["registrations"]]


def _doctor(host: ReachableHost, folder: Path) -> list[dict[str, Any]]:
    words = ["doctor", "--json", "--state-root", str(host.agent.root.path), "--server", host.plane.url]
    words += ["--token-file", str(folder / "credential")]
    with host.home.inside():
        said = subprocess.run(
            [sys.executable, "-m", "journeyman", *words],
            env={**os.environ, "JOURNEYMAN_NODE_NAME": NAME},
            capture_output=True,
            text=True,
            check=False,
        )
    found: list[dict[str, Any]] = json.loads(said.stdout)
    return found

"""A host that sleeps, as its control plane sees it: real agent, real plane, real bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.control import call
from tests.support.agents import agent
from tests.support.fake_logind import FakeLogind, running_bus
from tests.support.plane import FOREMAN, RunningPlane, agentic_task, running_plane
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[RunningPlane]:
    with running_plane(tmp_path / "plane") as plane:
        yield plane


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[str]:
    with running_bus(tmp_path) as address:
        yield address


NODE = f"{FOREMAN}/fleetnodes/node-a"
TASKS = f"{FOREMAN}/namespaces/default/agentictasks"


class Watched:
    """The FleetNode of the agent, as the plane has it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def status(self) -> dict[str, Any]:
        reply = self._client.get(NODE)
        found: dict[str, Any] = reply.json().get("status", {}) if reply.is_success else {}
        return found

    def shows(self, phase: str, *, beating: bool = True) -> bool:
        """Whether it is in that phase, with a heartbeat or without one."""
        status = self.status()
        return status.get("phase") == phase and bool(status.get("lastHeartbeatTime")) is beating

    def held(self) -> str:
        """Why it is held."""
        return next(
            (one["message"] for one in self.status().get("conditions", []) if one["type"] == "Held"), ""
        )


@pytest.fixture
def node(plane: RunningPlane) -> Iterator[Watched]:
    with plane.client() as client:
        yield Watched(client)


@pytest.fixture
def logind(bus: str) -> Iterator[FakeLogind]:
    found = FakeLogind(bus)
    yield found
    found.close()


@pytest.mark.parametrize(
    ("signal", "word"),
    [
        ("PrepareForSleep", "sleep"),
        pytest.param("PrepareForShutdown", "shuts down", marks=pytest.mark.full),
    ],
)
def test_a_host_says_good_bye_before_it_goes(
    tmp_path: Path, plane: RunningPlane, bus: str, logind: FakeLogind, node: Watched, signal: str, word: str
) -> None:
    """NotReady with no heartbeat before the host goes, then silence; afterwards a minute of hold."""
    given: dict[str, Any] = {"environment": {"DBUS_SYSTEM_BUS_ADDRESS": bus}}
    # A loaded machine may need longer than logind would wait.
    given["options"] = {"farewell_seconds": "20"}
    with agent(tmp_path, plane.url, plane.token_file, **given) as running:
        running.until_admitting()
        eventually(lambda: node.shows("Ready"), within_seconds=30)
        logind.wait_for_locks()
        assert logind.go(signal), running.log()
        assert node.shows("NotReady", beating=False), running.log()
        assert word in str(running.status()["holds"])
        # A beat that somebody asks for is none while the host is on its way.
        call(running.root, "cordon", reason="to beat")
        call(running.root, "uncordon")
        assert node.shows("NotReady", beating=False)

        logind.say(signal, going=False)
        eventually(lambda: node.shows("Draining"), within_seconds=30)
        eventually(lambda: "HostSlept" in node.held(), within_seconds=30)
        logind.wait_for_locks(1)


def test_a_host_that_shuts_down_gives_its_running_task_back(
    tmp_path: Path, plane: RunningPlane, bus: str, logind: FakeLogind, node: Watched, real_model: Path
) -> None:
    """Before the host goes the task is Pending and nobody's, its worker has ended, and no result was sent."""
    given: dict[str, Any] = {"environment": {"DBUS_SYSTEM_BUS_ADDRESS": bus}, "models": (str(real_model),)}
    given["options"] = {"farewell_seconds": "20"}
    with agent(tmp_path, plane.url, plane.token_file, **given) as running, plane.client() as client:
        running.until_admitting()
        running.until_serving()
        logind.wait_for_locks()
        # Some hundred tokens, which take seconds.
        prompt = {"payload": {"prompt": "Explain what a lighthouse is."}}
        client.post(TASKS, json=agentic_task("long", prompt)).raise_for_status()
        eventually(lambda: running.status()["tasks"], within_seconds=30)
        [worker] = [record.worker for record in running.worker_records() if record.kind == "freeform"]

        assert logind.go("PrepareForShutdown"), running.log()
        status = client.get(f"{TASKS}/long").raise_for_status().json()["status"]
        assert (status["phase"], status.get("assignedNode"), status.get("result")) == ("Pending", None, None)
        assert not worker.is_running()
        assert running.status()["undelivered"] == 0
        assert node.shows("NotReady", beating=False), running.log()

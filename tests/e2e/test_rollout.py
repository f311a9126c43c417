"""A fleet that updates itself: real releases, real agents under their guards, a real plane that rolls out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from journeyman.model.agent_release import AgentRelease, ReleasePhase
from journeyman.model.agentic_task import AgenticTask, TaskPhase
from journeyman.model.fleet_node import FleetNode
from journeyman_updater.contract import ProcessIdentity
from tests.support.installed_nodes import InstalledNode, installed_node, journeyman
from tests.support.plane import FOREMAN, RunningPlane, running_plane
from tests.support.real_releases import BASE_VERSION, CRASHES, RealReleases
from tests.support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real-releases")]

TASKS = f"{FOREMAN}/namespaces/default/agentictasks"
AGENTS = f"{FOREMAN}/namespaces/default/agents"
ROLLOUT_SECONDS = 240
TASK_TOKENS = STREAM_TOKENS = 1500


@dataclass
class Fleet:
    """A plane and three nodes, which begin with the first release."""

    plane: RunningPlane
    client: httpx.Client
    releases: RealReleases
    folder: Path
    nodes: list[InstalledNode] = field(default_factory=list)

    def publish(self, version: str, *options: str, at_run: str = "") -> str:
        """Derives a release, publishes it approved, and returns the name of its AgentRelease."""
        artifact = self.releases.derive(version, at_run=at_run)
        fast = ("--approve", "--min-healthy-seconds", "2", "--json")
        done = journeyman("release", "publish", artifact, *fast, *options, "--state-root", self.folder)
        assert done.returncode == 0, done.stderr
        name: str = json.loads(done.stdout)["metadata"]["name"]
        return name

    def release(self, name: str) -> AgentRelease:
        found = self.client.get(f"{FOREMAN}/agentreleases/{name}").raise_for_status()
        return AgentRelease.from_wire(found.json())

    def node(self, name: str) -> FleetNode:
        return FleetNode.from_wire(self.client.get(f"{FOREMAN}/fleetnodes/{name}").raise_for_status().json())

    def asked(self) -> list[str]:
        """The nodes that are asked to update."""
        return [each.name for each in self.nodes if self.node(each.name).status.update_request]

    def tasks(self) -> list[AgenticTask]:
        items = self.client.get(TASKS).raise_for_status().json()["items"]
        return [AgenticTask.from_wire(item) for item in items]

    def submit(self, count: int) -> None:
        """Submits so many more tasks."""
        known = len(self.tasks())
        for number in range(known, known + count):
            spec = {"kind": "freeform", "agentRef": {"name": "helper"}, "payload": {"prompt": "Go on."}}
            task = {"metadata": {"name": f"task-{number:03}"}, "spec": spec}
            self.client.post(TASKS, json=task).raise_for_status()

    def assert_runs(self, node: InstalledNode, version: str) -> None:
        """That version, by the plane, by the state document and by the process itself."""
        active = node.state().status.active
        assert active is not None
        assert active.version.spelled == version
        assert node.running_tree() == active.folder
        assert self.node(node.name).status.agent_version == version


@pytest.fixture(scope="module")
def fleet(
    real_releases: RealReleases, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Three nodes at the first release, each with a model that answers; in no test's hands twice broken."""
    folder = tmp_path_factory.mktemp("fleet")
    with running_plane(folder) as plane, plane.client() as client, ExitStack() as stack:
        fleet = Fleet(plane, client, real_releases, folder)
        first = real_releases.derive(BASE_VERSION)
        signed = journeyman("release", "publish", first, "--state-root", folder)
        assert signed.returncode == 0, signed.stderr
        for name in ("node-a", "node-b", "node-c"):
            node = installed_node(
                folder,
                first,
                plane.data_dir / "release.pub",
                name=name,
                server=plane.url,
                token_file=plane.token_file,
                models=(str(tiny_model),),
            )
            fleet.nodes.append(stack.enter_context(node))
        for each in fleet.nodes:
            each.until_serving()
        yield fleet


class Work(threading.Thread):
    """Does something over and over until it says False, or the block ends; its errors are raised there."""

    def __init__(self, act: Callable[[], bool]) -> None:
        super().__init__()
        self._act = act
        self._ending = threading.Event()
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            while self._act() and not self._ending.is_set():
                pass
        except BaseException as error:  # noqa: BLE001  # the thread of the test raises it
            self._failure = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self.join(60)
        assert not self.is_alive()
        if self._failure is not None:
            raise self._failure


@dataclass
class Streams:
    """Streams one answer after the other from a node's model server, until one has outlived an agent.

    Attributes:
        ended: for each stream its last usage and finish reason.
        spanning: whether one was open while the agent of that node was replaced.
    """

    node: InstalledNode
    ended: list[tuple[int, str]] = field(default_factory=list)
    spanning: bool = False

    def one(self) -> bool:
        """Whether another one is wanted."""
        [server] = [each for each in self.node.worker_records() if each.kind == "model-server"]
        files = self.node.root.workers / server.worker_id / "files"
        base = json.loads((files / "endpoint.json").read_text())["base_url"]
        before = self.node.agent()
        body = {
            "messages": [{"role": "user", "content": "Go on."}],
            "max_tokens": STREAM_TOKENS,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        headers = {"Authorization": f"Bearer {(files / 'api-key').read_text()}"}
        with httpx.stream(
            "POST", f"{base}/chat/completions", json=body, headers=headers, timeout=60
        ) as response:
            response.raise_for_status()
            # At line feeds alone: the model's random bytes are characters at which `str.splitlines` splits.
            lines = response.read().split(b"\n")
        prefix = b"data: {"
        chunks: list[dict[str, Any]] = [
            json.loads(line[len(prefix) - 1 :]) for line in lines if line.startswith(prefix)
        ]
        tokens = [chunk["usage"]["completion_tokens"] for chunk in chunks if chunk.get("usage")]
        reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
        self.ended.append((tokens[-1], reasons[-1]))
        self.spanning = self.node.agent() not in {before, None}
        return not self.spanning


@dataclass
class Watcher:
    """Looks at the fleet again and again, and remembers what must never be seen, and what has to be.

    Attributes:
        keeps_busy: whether each node shall have a task, until one has outlived an agent.
        most_asked: nodes that were asked to update at the same time.
        most_on_trial: nodes that had a release on trial at the same time.
        claims: for each task, by whom and when it was claimed.
        spanning: tasks that went on while the agent of their node was replaced.
    """

    fleet: Fleet
    keeps_busy: bool = False
    most_asked: int = 0
    most_on_trial: int = 0
    claims: dict[str, set[tuple[str, object]]] = field(default_factory=dict)
    spanning: set[str] = field(default_factory=set)
    _during: dict[str, ProcessIdentity] = field(default_factory=dict)

    def look(self) -> None:
        self.most_asked = max(self.most_asked, len(self.fleet.asked()))
        on_trial = sum(node.state().status.trial is not None for node in self.fleet.nodes)
        self.most_on_trial = max(self.most_on_trial, on_trial)
        agents = {node.name: node.agent() for node in self.fleet.nodes}
        tasks = self.fleet.tasks()
        for task in tasks:
            name, status = task.metadata.name, task.status
            if status.claimed_at is not None:
                self.claims.setdefault(name, set()).add((status.assigned_node, status.claimed_at))
            agent = agents.get(status.assigned_node or "")
            if status.phase is TaskPhase.RUNNING and agent is not None:
                first = self._during.setdefault(name, agent)
                self.spanning |= {name} if first != agent else set()
        if self.keeps_busy and not self.spanning:
            self.fleet.submit(len(self.fleet.nodes) - sum(not task.is_terminal for task in tasks))

    def until_phase(self, release: str, phase: ReleasePhase) -> AgentRelease:
        def reached() -> bool:
            self.look()
            return self.fleet.release(release).status.phase is phase

        eventually(reached, within_seconds=ROLLOUT_SECONDS, every_seconds=0.1)
        return self.fleet.release(release)


def test_a_release_rolls_over_a_busy_fleet_one_node_at_a_time(fleet: Fleet) -> None:
    """Each node runs it, one at a time; no model is loaded again, no stream and no task suffers."""
    persona = {
        "role": "planner",
        "temperature": "0",
        "maxOutputTokens": TASK_TOKENS,
        "tools": ["submit_result"],
    }
    fleet.client.post(AGENTS, json={"metadata": {"name": "helper"}, "spec": persona}).raise_for_status()
    servers = {node.name: model_server(node) for node in fleet.nodes}
    agents = {node.name: node.agent() for node in fleet.nodes}
    streams, watcher = Streams(fleet.nodes[0]), Watcher(fleet, keeps_busy=True)
    with Work(streams.one):
        release = watcher.until_phase(fleet.publish("1.1.0"), ReleasePhase.SUCCEEDED)
    watcher.keeps_busy = False

    def all_ended() -> bool:
        watcher.look()
        return all(task.is_terminal for task in fleet.tasks())

    eventually(all_ended, within_seconds=120, every_seconds=0.1)

    assert {node.name: node.phase for node in release.status.node_statuses} == {
        node.name: "Updated" for node in fleet.nodes
    }
    assert (watcher.most_asked, watcher.most_on_trial) == (1, 1)
    for node in fleet.nodes:
        fleet.assert_runs(node, "1.1.0")
        assert node.agent() not in {agents[node.name], None}
        assert model_server(node) == servers[node.name], "the model was loaded again"
        assert servers[node.name].is_running()
    assert streams.spanning, "no stream was open while the agent was replaced"
    assert set(streams.ended) == {(STREAM_TOKENS, "length")}
    assert watcher.spanning, "no task was running while an agent was replaced"
    assert {task.status.phase for task in fleet.tasks()} == {TaskPhase.SUCCEEDED}
    assert set(watcher.claims) == {task.metadata.name for task in fleet.tasks()}
    assert all(len(claims) == 1 for claims in watcher.claims.values()), watcher.claims


def test_a_bad_release_halts_after_the_first_node_and_a_better_one_goes_everywhere(fleet: Fleet) -> None:
    """The first node has undone a release that crashes, the others never saw it, and the next succeeds."""
    first, *others = fleet.nodes
    good = first.state().status.active
    assert good is not None
    untouched = {node.name: (node.agent(), node.state()) for node in others}
    watcher = Watcher(fleet)
    bad = watcher.until_phase(
        fleet.publish("1.2.0", "--timeout-seconds", "60", at_run=CRASHES), ReleasePhase.FAILED
    )
    failed = {node.name: (node.phase, node.reason) for node in bad.status.node_statuses}
    assert failed == {
        first.name: ("Failed", "NodeUpdateTimeout"),
        **{node.name: ("Pending", "") for node in others},
    }
    fleet.assert_runs(first, good.version.spelled)
    [rejection] = first.state().status.rejected
    assert (rejection.version, rejection.reason) == ("1.2.0", "CrashLoop")
    assert {node.name: (node.agent(), node.state()) for node in others} == untouched
    # Their updaters may have replaced themselves meanwhile, which is of the release before.
    assert not any(record.release == "1.2.0" for node in others for record in node.history())
    assert fleet.asked() == []

    better = watcher.until_phase(fleet.publish("1.3.0"), ReleasePhase.SUCCEEDED)
    assert better.status.updated_nodes == len(fleet.nodes)
    for node in fleet.nodes:
        fleet.assert_runs(node, "1.3.0")
    assert fleet.release(bad.metadata.name).status.phase is ReleasePhase.FAILED


def model_server(node: InstalledNode) -> ProcessIdentity:
    [record] = [each for each in node.worker_records() if each.kind == "model-server"]
    return record.worker

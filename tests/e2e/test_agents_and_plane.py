"""Real agents, a real plane and a real model, while things are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from journeyman.control import call
from journeyman.model.agentic_task import AgenticTask, TaskPhase, TaskVerdict
from journeyman.model.fleet_node import FleetNode
from journeyman.model.meta import parse_time
from journeyman_updater.contract import StateRoot
from tests.support.agents import AgentProcess, agent
from tests.support.killed_writer import kill_a_writer_of
from tests.support.plane import (
    FOREMAN,
    MERGE_PATCH,
    PlaneProcess,
    RunningPlane,
    http_client,
    running_plane,
    spawn_plane,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow

TASKS = f"{FOREMAN}/namespaces/default/agentictasks"
AGENTS = f"{FOREMAN}/namespaces/default/agents"
NODES = f"{FOREMAN}/fleetnodes"
# The small model answers this at temperature 0 with about 240 tokens, which takes it seconds.
LONG_PROMPT = "Explain what a lighthouse is."


class AheadClock:
    """The host's clock, some seconds ahead: a heartbeat is 90 s old as soon as it is 90 minus that old."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.seconds)


class Fleet:
    """What a test asks of a plane, by HTTP."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def persona(self, max_tokens: int) -> None:
        spec = {
            "role": "planner",
            "systemPrompt": "You are a helpful assistant.",
            "temperature": "0",
            "maxOutputTokens": max_tokens,
            "tools": ["submit_result"],
        }
        self._client.post(AGENTS, json={"metadata": {"name": "helper"}, "spec": spec}).raise_for_status()

    def submit(self, name: str, prompt: str) -> None:
        spec = {"kind": "freeform", "agentRef": {"name": "helper"}, "payload": {"prompt": prompt}}
        self._client.post(TASKS, json={"metadata": {"name": name}, "spec": spec}).raise_for_status()

    def task(self, name: str) -> AgenticTask:
        return AgenticTask.from_wire(self._client.get(f"{TASKS}/{name}").raise_for_status().json())

    def tasks(self) -> list[AgenticTask]:
        items = self._client.get(TASKS).raise_for_status().json()["items"]
        return [AgenticTask.from_wire(item) for item in items]

    def node(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._client.get(f"{NODES}/{name}").raise_for_status().json()
        return found

    def label(self, name: str, **labels: str) -> None:
        body = {"metadata": {"labels": labels}}
        self._client.patch(f"{NODES}/{name}", json=body, headers=MERGE_PATCH).raise_for_status()

    def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        body = {"metadata": {"annotations": annotations}}
        self._client.patch(f"{NODES}/{name}", json=body, headers=MERGE_PATCH).raise_for_status()

    def condition(self, name: str, kind: str) -> str:
        """The status of a condition of that node; empty while there is no node, or no such condition."""
        reply = self._client.get(f"{NODES}/{name}")
        conditions = reply.json().get("status", {}).get("conditions", []) if reply.is_success else []
        return next((str(each["status"]) for each in conditions if each["type"] == kind), "")

    def delete_node(self, name: str) -> None:
        self._client.delete(f"{NODES}/{name}").raise_for_status()

    def has_node(self, name: str) -> bool:
        return self._client.get(f"{NODES}/{name}").status_code == httpx.codes.OK

    def phase(self, name: str) -> TaskPhase | None:
        return self.task(name).status.phase

    def all_ended(self) -> bool:
        return all(task.is_terminal for task in self.tasks())


@pytest.fixture
def clock() -> AheadClock:
    return AheadClock()


@pytest.fixture
def plane(tmp_path: Path, clock: AheadClock) -> Iterator[RunningPlane]:
    with running_plane(tmp_path, clock) as running:
        yield running


@pytest.fixture
def fleet(plane: RunningPlane) -> Iterator[Fleet]:
    with plane.client() as client:
        yield Fleet(client)


def predicted_tokens(agent_process: AgentProcess) -> int:
    """How many tokens the model server of that agent has generated since it started."""
    [server] = [record for record in agent_process.worker_records() if record.kind == "model-server"]
    base_url = agent_process.status()["models"][0]["baseUrl"].removesuffix("/v1")
    key = (agent_process.root.workers / server.worker_id / "files" / "api-key").read_text()
    metrics = httpx.get(f"{base_url}/metrics", headers={"Authorization": f"Bearer {key}"}).text
    [line] = [each for each in metrics.splitlines() if each.startswith("llamacpp:tokens_predicted_total ")]
    return int(float(line.split()[1]))


def test_a_killed_agents_task_is_adopted_and_ends_once(
    tmp_path: Path,
    plane: RunningPlane,
    fleet: Fleet,
    real_model: Path,
) -> None:
    """After kill -9 the worker goes on, the next agent adopts it, and nothing is generated twice."""
    fleet.persona(max_tokens=400)
    with agent(tmp_path, plane.url, plane.token_file, models=(str(real_model),)) as first:
        first.until_serving()
        fleet.submit("long", LONG_PROMPT)
        eventually(lambda: first.status()["tasks"], within_seconds=20)
        workers = {record.worker_id: record.worker for record in first.worker_records()}
        claimed_at = fleet.task("long").status.claimed_at
        first.kill()
        assert all(worker.is_running() for worker in workers.values())
        assert fleet.phase("long") is TaskPhase.RUNNING

        first.start()
        assert {run["worker"] for run in first.status()["tasks"]} <= set(workers)
        eventually(lambda: fleet.task("long").is_terminal, within_seconds=60)
        first.until_serving()
        task = fleet.task("long")
        assert (task.status.phase, task.status.verdict) == (TaskPhase.SUCCEEDED, TaskVerdict.GO)
        assert task.status.claimed_at == claimed_at
        generated = task.status.result["extra"]["modelExtra"]["completionTokens"]
        # The rest are the single tokens by which each agent proves that its server answers.
        assert generated > 100
        assert predicted_tokens(first) - generated < 20
        [server] = [record for record in first.worker_records() if record.kind == "model-server"]
        assert server.worker == workers[server.worker_id], "the model was loaded again"
        eventually(lambda: {record.kind for record in first.worker_records()} == {"model-server", "proxy"})


def test_three_agents_share_thirty_tasks_and_the_rest_finish_those_of_a_dead_one(
    tmp_path: Path,
    plane: RunningPlane,
    fleet: Fleet,
    clock: AheadClock,
    tiny_model: Path,
) -> None:
    """All three work at once, no task is on two nodes, and the death of one host costs no task."""
    fleet.persona(max_tokens=200)
    names = [f"task-{number:02}" for number in range(30)]
    owners: dict[str, set[str]] = {name: set() for name in names}
    most_at_once = 0

    def watch() -> list[AgenticTask]:
        nonlocal most_at_once
        tasks = fleet.tasks()
        running = [task for task in tasks if task.status.phase is TaskPhase.RUNNING]
        nodes = [task.status.assigned_node for task in running]
        assert len(nodes) == len(set(nodes)), f"one node has two tasks: {nodes}"
        most_at_once = max(most_at_once, len(nodes))
        for task in running:
            owners[task.metadata.name].add(task.status.assigned_node)
        return tasks

    with ExitStack() as stack:
        agents = [
            stack.enter_context(
                agent(tmp_path, plane.url, plane.token_file, name=name, models=(str(tiny_model),))
            )
            for name in ("node-a", "node-b", "node-c")
        ]
        for each in agents:
            each.until_serving()
        for name in names:
            fleet.submit(name, "Say yes.")

        def half_done() -> bool:
            return sum(task.is_terminal for task in watch()) >= len(names) // 2

        eventually(half_done, within_seconds=60)
        victim = next(
            each
            for each in agents
            if any(task.status.assigned_node == each.name and task.is_in_flight for task in fleet.tasks())
        )
        victim.kill()
        victim.kill_workers()
        # From now on a heartbeat of more than five seconds is one of more than ninety.
        clock.seconds = 85.0
        eventually(lambda: all(task.is_terminal for task in watch()), within_seconds=90)
    assert most_at_once == len(agents)
    ended = fleet.tasks()
    assert len(ended) == len(names)
    assert {task.status.phase for task in ended} == {TaskPhase.SUCCEEDED}
    moved = [name for name, nodes in owners.items() if len(nodes) > 1]
    assert all(victim.name in owners[name] for name in moved)


def test_a_killed_plane_loses_nothing(tmp_path: Path, real_model: Path) -> None:
    """Agents carry on without the plane, and what they finished meanwhile is there after its return."""
    with spawn_plane(tmp_path) as plane, ExitStack() as stack:
        client = stack.enter_context(http_client(plane.url, plane.token))
        fleet = Fleet(client)
        fleet.persona(max_tokens=400)
        token_file = plane.data_dir / "admin.token"
        running = stack.enter_context(
            agent(tmp_path, plane.url, token_file, models=(str(real_model),))
        ).until_serving()
        fleet.submit("long", LONG_PROMPT)
        fleet.submit("later", "Say yes.")
        eventually(lambda: running.status()["tasks"], within_seconds=20)
        plane.kill()
        eventually(lambda: running.status()["undelivered"] == 1, within_seconds=60)
        assert running.status()["tasks"] == []
        assert running.process is not None
        assert running.process.poll() is None
        plane.start()
        eventually(partial(_ended, plane), within_seconds=60)
        with http_client(plane.url, plane.token) as again:
            tasks = {task.metadata.name: task for task in Fleet(again).tasks()}
        assert tasks["long"].status.verdict is TaskVerdict.GO
        assert tasks["later"].status.phase is TaskPhase.SUCCEEDED


def _ended(plane: PlaneProcess) -> bool:
    with http_client(plane.url, plane.token) as client:
        return Fleet(client).all_ended()


def test_a_stopped_agent_leaves_a_node_that_is_skipped_and_stays(
    tmp_path: Path, plane: RunningPlane, fleet: Fleet, clock: AheadClock
) -> None:
    """After a stop the scheduler passes the node over at once; an hour later it is there, labels and all."""
    with agent(tmp_path, plane.url, plane.token_file) as running:
        eventually(lambda: fleet.has_node(running.name))
        fleet.label(running.name, rack="b2")
        eventually(lambda: running.remembers("rack"))
        assert running.stop() == 0
        node = FleetNode.from_wire(fleet.node(running.name))
        assert not node.is_schedulable(clock.now())
        fleet.persona(max_tokens=24)
        fleet.submit("waits", "Say yes.")
        clock.seconds = 3600.0
        fleet.submit("also-waits", "Say yes.")
        eventually(lambda: fleet.phase("also-waits") is TaskPhase.PENDING)
        node = FleetNode.from_wire(fleet.node(running.name))
        assert (node.metadata.labels["rack"], node.metadata.labels["journeyman.dev/agent"]) == ("b2", "true")
        assert not node.is_schedulable(clock.now())
        assert fleet.phase("waits") is TaskPhase.PENDING


def test_a_start_removes_what_a_killed_agent_has_left(tmp_path: Path, plane: RunningPlane) -> None:
    """Files that were cut off at their writing go, at any depth; what has its name stays."""
    root = StateRoot(tmp_path / "node-a")
    kept = root.models / "names" / "tiny.json"
    lefts = [
        kill_a_writer_of(path)
        for path in (root.node_file, root.outbox / "set-aside" / "a.why", kept, root.last_beat_file)
    ]
    kept.write_text("{}")
    with agent(tmp_path, plane.url, plane.token_file):
        assert not any(left.exists() for left in lefts)
        assert kept.exists()


def test_a_node_that_was_deleted_by_hand_comes_back_with_its_labels(
    tmp_path: Path, plane: RunningPlane, fleet: Fleet
) -> None:
    """The running agent registers again, and restores what others had put on the node."""
    with agent(tmp_path, plane.url, plane.token_file) as running:
        eventually(lambda: fleet.has_node(running.name))
        fleet.label(running.name, rack="b2")
        eventually(lambda: running.remembers("rack"))
        before = fleet.node(running.name)["metadata"]["uid"]
        fleet.delete_node(running.name)
        eventually(
            lambda: fleet.has_node(running.name) and fleet.node(running.name)["metadata"]["uid"] != before
        )
        labels = fleet.node(running.name)["metadata"]["labels"]
        assert (labels["rack"], labels["journeyman.dev/agent"]) == ("b2", "true")


def test_stopping_while_a_task_runs_keeps_its_claim(
    tmp_path: Path,
    plane: RunningPlane,
    fleet: Fleet,
    real_model: Path,
) -> None:
    """SIGTERM lets the worker go on, and an agent that starts in time delivers what it did."""
    fleet.persona(max_tokens=400)
    with agent(tmp_path, plane.url, plane.token_file, models=(str(real_model),)) as running:
        running.until_serving()
        fleet.submit("long", LONG_PROMPT)
        eventually(lambda: running.status()["tasks"], within_seconds=20)
        claimed_at = fleet.task("long").status.claimed_at
        assert running.stop() == 0
        node = FleetNode.from_wire(fleet.node(running.name))
        assert node.status.phase == "Draining"
        assert node.status.last_heartbeat_time is not None
        running.start()
        eventually(lambda: fleet.task("long").is_terminal, within_seconds=60)
        task = fleet.task("long")
        assert (task.status.verdict, task.status.claimed_at) == (TaskVerdict.GO, claimed_at)


def test_a_cordon_is_seen_by_the_plane_and_outlives_the_agent(
    tmp_path: Path, plane: RunningPlane, fleet: Fleet
) -> None:
    """What the user asked for holds over a restart, and the node says why it is Draining."""
    with agent(tmp_path, plane.url, plane.token_file) as running:
        call(running.root, "cordon", reason="video call", seconds=3600)
        eventually(lambda: fleet.has_node(running.name))
        eventually(lambda: fleet.node(running.name)["status"].get("phase") == "Draining")
        running.kill()
        running.start()
        assert running.status()["phase"] == "Draining"
        eventually(
            lambda: any(
                condition["type"] == "Held" and "video call" in condition["message"]
                for condition in fleet.node(running.name)["status"].get("conditions", [])
            )
        )
        call(running.root, "uncordon")
        eventually(lambda: fleet.node(running.name)["status"].get("phase") == "Ready")


def test_a_drain_from_afar_is_obeyed_answered_and_outlives_plane_and_agent(
    tmp_path: Path, plane: RunningPlane, fleet: Fleet
) -> None:
    """An annotation with an end and a reason keeps work away until it is taken off."""
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    with agent(tmp_path, plane.url, plane.token_file) as running:
        running.until_admitting()
        eventually(lambda: fleet.condition(running.name, "Held") == "False")
        assert fleet.condition(running.name, "Drained") == ""
        fleet.annotate(running.name, {"journeyman.dev/drain": f"{until} the disk is replaced"})
        eventually(lambda: fleet.condition(running.name, "Drained") == "True")
        assert fleet.node(running.name)["status"]["phase"] == "Draining"
        running.kill()
        # The next agent cannot ask anybody.
        running.server = "http://127.0.0.1:9"
        running.start()
        # A gate may hold as well, until the first readings are there.
        holds = [(hold["owner"], hold["reason"]) for hold in running.status()["holds"]]
        assert ("remote", "drain: the disk is replaced") in holds
        running.kill()
        running.server = plane.url
        running.start()
        fleet.annotate(running.name, {"journeyman.dev/drain": None})
        eventually(lambda: fleet.node(running.name)["status"]["phase"] == "Ready", within_seconds=30)
        eventually(lambda: fleet.condition(running.name, "Drained") == "False", within_seconds=30)


def test_a_claim_whose_worker_is_gone_is_handed_back(
    tmp_path: Path,
    plane: RunningPlane,
    fleet: Fleet,
    real_model: Path,
) -> None:
    """When agent, shim and worker all died, nobody knows how the work ended: the task runs anew."""
    fleet.persona(max_tokens=400)
    with agent(tmp_path, plane.url, plane.token_file, models=(str(real_model),)) as running:
        running.until_serving()
        fleet.submit("long", LONG_PROMPT)
        eventually(lambda: running.status()["tasks"], within_seconds=20)
        claimed_at = fleet.task("long").status.claimed_at
        running.kill()
        running.kill_workers()
        running.start()
        eventually(lambda: fleet.task("long").is_terminal, within_seconds=90)
        task = fleet.task("long")
        assert task.status.verdict is TaskVerdict.GO
        assert task.status.claimed_at != claimed_at
        assert task.status.started_at is not None
        assert task.status.started_at > parse_time("2026-01-01T00:00:00Z")

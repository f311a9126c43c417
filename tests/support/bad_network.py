"""Nodes that work through a bad network: the product's loops against a real plane, and what must hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.core.beat import Identity
from journeyman.core.completion import RESULT_FILE, Completion
from journeyman.core.holds import Holds
from journeyman.loops.heartbeat_loop import HeartbeatLoop, NodeView
from journeyman.model.agentic_task import CLAIM_EXPIRIES_ANNOTATION
from journeyman.model.fleet_node import LABEL_AGENT, Capability, FleetNode
from journeyman.model.resources import AGENTIC_TASKS, FLEET_NODES
from journeyman.node_tasks import NodeTasks
from journeyman.settings import Settings
from journeyman_plane.ports import Key
from journeyman_updater.contract import WorkerRecord, WorkerSpec
from tests.support.fake_workers import FakeWorkers
from tests.support.fault_proxy import FaultProxy, Schedule, fault_proxy
from tests.support.node_tasks import node_tasks
from tests.support.plane import RunningPlane, agentic_task
from tests.support.virtual_time import VirtualClock

TASKS = 20
WORK_SECONDS = 5.0
# Of virtual time.
LONGEST_SECONDS = 7200.0
# A beat's time has whole seconds, so the last of the ninety may be lost.
LEASE_SECONDS = 88.0
# So many lost claims end a task without a result.
STRIKES = 3
CAPABILITY = Capability(
    accelerator="none", total_ram_gb=8, available_ram_gb=8, installed_models=("m",),
    max_context_tokens=4096, tokens_per_second=0,
)  # fmt: skip


class Answering(FakeWorkers):
    """Workers that answer by themselves, each with the name of its task.

    Args:
        seconds: how long each of them takes.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.ran: list[str] = []

    def start(
        self, worker_id: str, spec: WorkerSpec, files: Mapping[str, bytes] | None = None
    ) -> WorkerRecord:
        record = super().start(worker_id, spec, files)
        self.ran.append(record.labels["name"])
        asyncio.get_running_loop().call_later(self._seconds, self._answer, record)
        return record

    def _answer(self, record: WorkerRecord) -> None:
        if self.running(record):
            answer = Completion(text=f"the answer to {record.labels['name']}", finish_reason="stop")
            self.write_file(record, RESULT_FILE, answer.to_json())
            self.finish(record.worker_id)


@dataclass
class Node:
    """One agent's loops, which may be broken off and begun anew as by a restart.

    Attributes:
        name: of its FleetNode.
        url: where it finds the plane.
        token_file: the plane's.
        root: its state root.
        namespace: whose tasks it takes.
        workers: outlive its restarts.
        beaten_at: when the plane took its heartbeats, in virtual seconds.
    """

    name: str
    url: str
    token_file: Path
    root: Path
    namespace: str
    workers: Answering = field(default_factory=lambda: Answering(WORK_SECONDS))
    beaten_at: list[float] = field(default_factory=list)
    tasks: NodeTasks | None = None

    def longest_silence(self) -> float:
        """The longest time between two heartbeats that the plane took, up to now."""
        times = [*self.beaten_at, VirtualClock().monotonic()]
        return max((later - earlier for earlier, later in pairwise(times)), default=0.0)

    @asynccontextmanager
    async def living(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """The loops, until the end of the block."""
        settings = Settings(
            state_root=self.root,
            server=self.url,
            token_file=self.token_file,
            namespace=self.namespace,
            max_concurrent_tasks=4,
        )
        clock = VirtualClock()
        plane = HttpControlPlane(settings, clock, version="1.0.0")
        self.tasks = node_tasks(plane, self.workers, clock, settings, node_name=self.name)
        self.tasks.take_up()
        heartbeat = self._heartbeat(plane, settings)
        loops = [asyncio.create_task(loop) for loop in (heartbeat.run(), *self.tasks.loops())]
        try:
            yield loops
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            await self.tasks.runner.let_go()
            await plane.aclose()

    def _heartbeat(self, plane: HttpControlPlane, settings: Settings) -> HeartbeatLoop:
        return HeartbeatLoop(
            plane=plane,
            clock=VirtualClock(),
            identity=Identity(
                node_name=self.name,
                instance=f"instance-{self.name}",
                labels={LABEL_AGENT: "true", "net": self.namespace},
                roles=(),
                version="1.0.0",
                os="linux",
                arch="amd64",
                updates_by_release=False,
            ),
            memory=JsonFile(self.root / "node-memory.json"),
            settings=settings,
            view=NodeView(
                holds=_nobody_holds,
                capability=lambda: CAPABILITY,
                told=tuple,
                updatable=lambda: "true",
                models=lambda: "",
            ),
            accepted=self._accepted,
            attempted=lambda: None,
        )

    def _accepted(self, node: FleetNode) -> None:
        self.beaten_at.append(VirtualClock().monotonic())
        assert self.tasks is not None
        self.tasks.beat_accepted(node)


def _nobody_holds(_: datetime) -> Holds:
    return Holds()


@dataclass
class Run:
    """One schedule: a node or two, twenty tasks, one bad network.

    Attributes:
        seed: of the schedule.
        plane: the plane.
        root: the folder of the nodes.
    """

    seed: int
    plane: RunningPlane
    root: Path

    @property
    def namespace(self) -> str:
        return f"net-{self.seed}"

    async def check(self) -> None:
        """Lets the nodes work until all is done.  Raises AssertionError: what must hold does not."""
        since = self._submit()
        schedule = Schedule(self.seed)
        async with fault_proxy(self.plane.url, schedule, VirtualClock()) as proxy:
            # The second node is a third of the cost, so it is there in every third schedule.
            nodes = [self._node(name, proxy) for name in ("a", "b")[: 1 + (self.seed % 3 == 0)]]
            async with AsyncExitStack() as others:
                steady = [
                    loop for node in nodes[1:] for loop in await others.enter_async_context(node.living())
                ]
                if schedule.random.random() < 0.5:
                    async with nodes[0].living() as loops:
                        await self._until(lambda: self._ended() >= TASKS // 4, nodes, [*steady, *loops])
                # An agent that starts again goes on by what is on its disk.
                async with nodes[0].living() as loops:
                    await self._until(lambda: self._done(nodes), nodes, [*steady, *loops])
        self._judge(since, nodes)

    def _node(self, name: str, proxy: FaultProxy) -> Node:
        root = self.root / f"{self.namespace}-{name}"
        return Node(f"{self.namespace}-{name}", proxy.url, self.plane.token_file, root, self.namespace)

    def _submit(self) -> int:
        """Makes the tasks; returns the version from which the history of this run is read."""
        store = self.plane.store
        since: int = store.version()
        store.create(
            Key("", "namespaces", "", self.namespace),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {}},
        )
        spec = {"requiredCapability": {"nodeSelector": {"net": self.namespace}}}
        for number in range(TASKS):
            body = {"apiVersion": AGENTIC_TASKS.api_version, "kind": AGENTIC_TASKS.kind}
            name = f"t{number}"
            store.create(
                Key(AGENTIC_TASKS.group, AGENTIC_TASKS.plural, self.namespace, name),
                body | agentic_task(name, spec),
            )
        return since

    async def _until(self, condition: Any, nodes: list[Node], loops: list[asyncio.Task[None]]) -> None:
        """Waits for it; no loop may end meanwhile, as that would be an agent that exits."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                while not condition():
                    ended, _ = await asyncio.wait(loops, timeout=5)
                    assert not ended, f"an agent has ended: {[loop.exception() for loop in ended]}"
        except TimeoutError:
            raise AssertionError(f"not done within {LONGEST_SECONDS:g} s: {self._state(nodes)}") from None

    def _tasks(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.plane.store.select(
            AGENTIC_TASKS.group, AGENTIC_TASKS.plural, self.namespace
        )[0]
        return items

    def _ended(self) -> int:
        return sum(is_over(task.get("status", {})) for task in self._tasks())

    def _done(self, nodes: list[Node]) -> bool:
        undelivered = [node for node in nodes if node.tasks is not None and node.tasks.outbox.claims()]
        return self._ended() == TASKS and not undelivered

    def _state(self, nodes: list[Node]) -> str:
        phases = Counter(task.get("status", {}).get("phase") for task in self._tasks())
        waiting = [len(node.tasks.outbox.claims()) for node in nodes if node.tasks is not None]
        return f"{dict(phases)}, undelivered {waiting}"

    def _judge(self, since: int, nodes: list[Node]) -> None:
        """Reads the whole history of the tasks: each ended once, and with its own result."""
        last: dict[str, dict[str, Any]] = {}
        ends: Counter[str] = Counter()
        lost: Counter[str] = Counter()
        for change in self.plane.store.changes(since, (AGENTIC_TASKS.group, AGENTIC_TASKS.plural)):
            name, status = change.key.name, change.object.get("status", {})
            if change.key.namespace == self.namespace:
                before = last.get(name, {})
                assert not is_over(before) or before == status, f"{name} changed after its end"
                ends[name] += is_over(status) and not is_over(before)
                strikes = change.object["metadata"].get("annotations", {}).get(CLAIM_EXPIRIES_ANNOTATION, "0")
                lost[name] = int(strikes)
                last[name] = status
        assert ends == {f"t{number}": 1 for number in range(TASKS)}, f"ended not once each: {ends}"
        for name, status in last.items():
            if lost[name] < STRIKES:
                assert (status["phase"], status["verdict"]) == ("Succeeded", "GO"), f"{name}: {status}"
                assert status["result"]["extra"]["modelExtra"]["answer"] == f"the answer to {name}"
        self._judge_nodes(nodes, lost)

    def _judge_nodes(self, nodes: list[Node], lost: Counter[str]) -> None:
        """A task ran once, and once more at most for each time that its claim had surely expired."""
        heard = all(node.longest_silence() < LEASE_SECONDS for node in nodes)
        assert not heard or not +lost, f"claims were lost of nodes that were heard: {+lost}"
        assert all(node.tasks is not None for node in nodes)
        runs = Counter(name for node in nodes for name in node.workers.ran)
        for name, count in runs.items():
            assert count <= 1 + lost[name], f"{name} ran {count} times, and was lost {lost[name]} times"
        for node in nodes:
            for letter in node.tasks.outbox.dead_letters() if node.tasks is not None else ():
                assert letter.value is not None
                assert "came too late" in letter.why
                assert lost[letter.value["claim"]["name"]], f"{letter} though the claim was never lost"
            stored = self.plane.store.get(Key(FLEET_NODES.group, FLEET_NODES.plural, "", node.name))
            assert stored["metadata"]["labels"]["net"] == self.namespace


def is_over(status: dict[str, Any]) -> bool:
    """Whether a task's status is an end."""
    return status.get("phase") in {"Succeeded", "Failed"}

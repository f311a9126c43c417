"""What a cluster is told of the services of a host, with a control plane and a clock that obey the test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.core.fleet_services import ServedService
from journeyman.core.proxy.reach import Reach
from journeyman.core.registration import Registrar
from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.loops.registration_loop import RegistrationLoop, Served
from journeyman.model.meta import format_time
from journeyman.model.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource
from journeyman.ports import Collection, JsonObject
from journeyman.settings import Settings
from tests.support.clock import START, FakeClock
from tests.support.fake_control_plane import FakeControlPlane

CODER = ServedService("default", "coder.large", "uid-1", "coder.large", 8080, is_ready=True)
CHAT = ServedService("work", "chat", "uid-2", "chat", 80, is_ready=True)
REACH = Reach("100.64.0.7", 6482, ("10.0.0.0/8",))
MARKS = {
    "app": "coder.large",
    "llmkube.ai/managed-by": "metal-agent",
    "llmkube.ai/inference-service": "coder.large",
}
DOOR_CLOSED = "100.64.0.7 is no address of this host, or not yet"


class Cluster:
    """A control plane, and the life of agents with services in front of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.plane = FakeControlPlane()
        self.clock = FakeClock()
        self.services: list[ServedService] = [CODER]
        self.are_known = True
        self.why_not = ""

    def loop(self, reach: Reach | None = REACH, node: str = "desk") -> RegistrationLoop:
        return RegistrationLoop(
            plane=self.plane,
            clock=self.clock,
            settings=Settings(
                state_root=self.root,
                heartbeat_jitter_fraction=0,
                fleet_services=reach is not None,
                fleet_service_namespaces=("default", "work"),
            ),
            registrar=None if reach is None else Registrar(node, "1.2.3", reach),
            node=node,
            memory=JsonFile(self.root / f"{node}.json"),
            served=Served(lambda: self.services, lambda: self.are_known, lambda: self.why_not),
        )

    @contextlib.asynccontextmanager
    async def agent(self, reach: Reach | None = REACH, node: str = "desk") -> AsyncIterator[RegistrationLoop]:
        loop = self.loop(reach, node)
        running = asyncio.create_task(loop.run())
        try:
            await self.clock.settle()
            yield loop
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    async def news(self, loop: RegistrationLoop) -> None:
        """Something has changed, and the loop looks."""
        loop.look_soon()
        await self.clock.settle()

    async def make(self, resource: Resource, name: str = "coder-large", **metadata: Any) -> None:
        """An object of somebody else."""
        body: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind}
        if resource is ENDPOINT_SLICES:
            body["addressType"] = "IPv4"
        await self.plane.create(_at(resource), body | {"metadata": {"name": name, **metadata}})

    async def get(
        self, resource: Resource, name: str = "coder-large", namespace: str = "default"
    ) -> JsonObject:
        return await self.plane.get(_at(resource, namespace).named(name))

    async def has(self, resource: Resource, name: str = "coder-large", namespace: str = "default") -> bool:
        with contextlib.suppress(NotFoundError):
            await self.get(resource, name, namespace)
            return True
        return False

    async def is_ready(self) -> bool:
        (endpoint,) = (await self.get(ENDPOINT_SLICES))["endpoints"]
        return bool(endpoint["conditions"]["ready"])

    async def heartbeat(self) -> str:
        return str((await self.get(ENDPOINT_SLICES))["metadata"]["annotations"]["llmkube.ai/agent-heartbeat"])


def _at(resource: Resource, namespace: str = "default") -> Collection:
    return Collection(resource.group, resource.version, resource.plural, namespace)


def states(loop: RegistrationLoop) -> list[str]:
    return [shown["state"] for shown in loop.snapshot()]


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_the_objects_are_those_of_metal_agent_with_our_label(cluster: Cluster) -> None:
    """Names, labels, annotations, ports and target as its clients and the operator know them."""

    async def scenario() -> None:
        async with cluster.agent() as loop:
            service, slice_ = await cluster.get(SERVICES), await cluster.get(ENDPOINT_SLICES)
            labels = MARKS | {"journeyman.dev/node": "desk"}
            assert service["metadata"]["labels"] == labels
            assert service["metadata"]["annotations"] == {
                "llmkube.ai/metal-accelerated": "true",
                "llmkube.ai/native-process": "true",
            }
            port = {"name": "http", "port": 8080, "targetPort": 6482, "protocol": "TCP"}
            assert service["spec"] == {"type": "ClusterIP", "ports": [port]}
            assert slice_["metadata"]["labels"] == labels | {"kubernetes.io/service-name": "coder-large"}
            assert slice_["metadata"]["annotations"] == {
                "llmkube.ai/agent-heartbeat": format_time(START),
                "llmkube.ai/agent-version": "1.2.3",
            }
            assert slice_["addressType"] == "IPv4"
            assert slice_["endpoints"] == [
                {
                    "addresses": ["100.64.0.7"],
                    "conditions": {"ready": True},
                    "targetRef": {"kind": "Pod", "name": "coder.large-metal"},
                }
            ]
            assert slice_["ports"] == [{"name": "http", "port": 6482, "protocol": "TCP"}]
            (shown,) = loop.snapshot()
            assert (shown["service"], shown["state"]) == ("default/coder.large", "ready")

    play(scenario)


def test_heartbeats_are_fresh_and_by_the_servers_clock(cluster: Cluster) -> None:
    """Every 30 s; nothing else of the objects is written again, and a look without news costs nothing."""

    async def scenario() -> None:
        cluster.plane.offset_seconds = 600
        async with cluster.agent() as loop:
            assert await cluster.heartbeat() == format_time(START + timedelta(seconds=600))
            service = await cluster.get(SERVICES)
            calls = len(cluster.plane.calls)
            for _ in range(5):
                await cluster.news(loop)
            assert len(cluster.plane.calls) == calls
            await cluster.clock.run_for(30)
            assert await cluster.heartbeat() == format_time(START + timedelta(seconds=630))
            assert await cluster.get(SERVICES) == service

    play(scenario)


def test_a_server_that_is_not_ready_gets_nothing_at_once(cluster: Cluster) -> None:
    """LLMKube #662, #705, #771: not at the next heartbeat; and it is back as soon as it answers."""

    async def scenario() -> None:
        async with cluster.agent() as loop:
            assert await cluster.is_ready()
            cluster.services = [replace(CODER, is_ready=False)]
            await cluster.news(loop)
            assert not await cluster.is_ready()
            assert states(loop) == ["notReady"]
            cluster.services = [CODER]
            await cluster.news(loop)
            assert await cluster.is_ready()

    play(scenario)


def test_a_door_that_is_not_open_is_not_ready(cluster: Cluster) -> None:
    """Its address may come late; it is ready within moments of that, and says why until then."""

    async def scenario() -> None:
        cluster.why_not = DOOR_CLOSED
        async with cluster.agent() as loop:
            assert not await cluster.is_ready()
            assert loop.snapshot()[0]["reason"] == DOOR_CLOSED
            cluster.why_not = ""
            await cluster.clock.run_for(2)
            assert await cluster.is_ready()

    play(scenario)


def test_what_is_not_served_any_more_is_withdrawn(cluster: Cluster) -> None:
    """Suspended, given to another node, or deleted: both objects go, and those of others stay."""

    async def scenario() -> None:
        await cluster.make(SERVICES, "foreign", labels=MARKS | {"journeyman.dev/node": "peer"})
        cluster.services = [CODER, CHAT]
        async with cluster.agent() as loop:
            assert await cluster.has(SERVICES, "chat", "work")
            cluster.services = [CODER]
            await cluster.news(loop)
            for kind in (SERVICES, ENDPOINT_SLICES):
                assert not await cluster.has(kind, "chat", "work")
                assert await cluster.has(kind)
            assert await cluster.has(SERVICES, "foreign")
            assert states(loop) == ["ready"]

    play(scenario)


def test_orphans_of_an_earlier_life_are_withdrawn_once_it_is_known_what_is_served(cluster: Cluster) -> None:
    """An agent that has not read the services yet ends nobody's registration."""

    async def scenario() -> None:
        ours = MARKS | {"journeyman.dev/node": "desk"}
        for kind in (SERVICES, ENDPOINT_SLICES):
            await cluster.make(kind, "orphan", labels=ours)
        cluster.are_known = False
        async with cluster.agent() as loop:
            assert await cluster.has(SERVICES, "orphan")
            assert await cluster.is_ready()
            cluster.are_known = True
            await cluster.news(loop)
            assert not await cluster.has(SERVICES, "orphan")
            assert not await cluster.has(ENDPOINT_SLICES, "orphan")
            assert await cluster.is_ready()

    play(scenario)


@pytest.mark.parametrize("kind", [SERVICES, ENDPOINT_SLICES], ids=lambda kind: kind.plural)
def test_what_is_somebody_elses_is_not_overwritten(cluster: Cluster, kind: Resource) -> None:
    """No byte of it changes, the other object of that name is not made, and people are told what to do."""

    async def scenario() -> None:
        await cluster.make(kind, labels={"app": "coder.large"})
        before = await cluster.get(kind)
        async with cluster.agent() as loop:
            await cluster.clock.run_for(60)
            assert await cluster.get(kind) == before
            other = ENDPOINT_SLICES if kind is SERVICES else SERVICES
            assert not await cluster.has(other)
            (shown,) = loop.snapshot()
            assert shown["state"] == "foreign"
            assert "delete it, or rename" in shown["reason"]
            await cluster.plane.delete(_at(kind).named("coder-large"))
            await cluster.clock.run_for(30)
            assert states(loop) == ["ready"]

    play(scenario)


def test_two_agents_do_not_fight_over_a_service(cluster: Cluster) -> None:
    """LLMKube #524: whoever came first keeps it while it is heard, and the other one takes it after that."""

    async def scenario() -> None:
        async with cluster.agent() as first, cluster.agent(node="peer") as second:
            await cluster.clock.run_for(300)
            assert (states(first), states(second)) == (["ready"], ["contested"])
            assert "desk registers it, too" in second.snapshot()[0]["reason"]
            assert not [call for call in cluster.plane.calls if call[0] == "delete"]
        async with cluster.agent(node="peer") as second:
            await cluster.clock.run_for(150)
            assert states(second) == ["contested"]
            await cluster.clock.run_for(90)
            assert states(second) == ["ready"]
            labels = (await cluster.get(ENDPOINT_SLICES))["metadata"]["labels"]
            assert labels["journeyman.dev/node"] == "peer"

    play(scenario)


@pytest.mark.parametrize("heartbeat", ["", "yesterday", format_time(START - timedelta(minutes=4))])
def test_what_a_metal_agent_has_left_is_taken_over(cluster: Cluster, heartbeat: str) -> None:
    """LLMKube #891, #657: its dead port is not kept, nor the Endpoints of its time before slices."""

    async def scenario() -> None:
        old: dict[str, Any] = {
            "labels": MARKS,
            "annotations": {"llmkube.ai/agent-heartbeat": heartbeat, "own": "1"},
        }
        for kind in (SERVICES, ENDPOINT_SLICES, ENDPOINTS):
            await cluster.make(kind, **old)
        async with cluster.agent() as loop:
            assert states(loop) == ["ready"]
            slice_ = await cluster.get(ENDPOINT_SLICES)
            assert slice_["ports"][0]["port"] == 6482
            assert slice_["metadata"]["annotations"]["own"] == "1"
            assert not await cluster.has(ENDPOINTS)

    play(scenario)


def test_endpoints_of_others_stay(cluster: Cluster) -> None:
    """Only those with the mark of a metal-agent are its leavings."""

    async def scenario() -> None:
        await cluster.make(ENDPOINTS, labels={"app": "coder.large"})
        async with cluster.agent():
            assert await cluster.has(ENDPOINTS)

    play(scenario)


def test_a_metal_agent_that_is_heard_is_left_alone(cluster: Cluster) -> None:
    """Its heartbeat is all that tells us of it."""

    async def scenario() -> None:
        fresh = {"llmkube.ai/agent-heartbeat": format_time(START - timedelta(minutes=2))}
        await cluster.make(ENDPOINT_SLICES, labels=MARKS, annotations=fresh)
        async with cluster.agent() as loop:
            assert states(loop) == ["contested"]
            assert "metal-agent registers it" in loop.snapshot()[0]["reason"]
            assert not await cluster.has(SERVICES)

    play(scenario)


def test_an_api_that_is_away_ends_nothing(cluster: Cluster) -> None:
    """The loop goes on, tries at growing pauses, and tells the state of then when it is heard again."""

    async def scenario() -> None:
        async with cluster.agent() as loop:
            await cluster.plane.lose(UnreachableError("no route"))
            cluster.services = [replace(CODER, is_ready=False)]
            calls = len(cluster.plane.calls)
            await cluster.news(loop)
            await cluster.clock.run_for(600)
            assert 20 <= len(cluster.plane.calls) - calls <= 60
            cluster.plane.down = None
            await cluster.clock.run_for(30)
            assert not await cluster.is_ready()

    play(scenario)


def test_somebody_who_wrote_in_between_is_read_again(cluster: Cluster) -> None:
    """A conflict is no failure, and what the other one has written stays."""

    async def scenario() -> None:
        async with cluster.agent() as loop:
            note = {"metadata": {"annotations": {"note": "x"}}}
            await cluster.plane.patch(_at(ENDPOINT_SLICES).named("coder-large"), note)
            cluster.plane.fail("patch", ConflictError("modified", status=409))
            cluster.services = [replace(CODER, is_ready=False)]
            await cluster.news(loop)
            assert not await cluster.is_ready()
            assert (await cluster.get(ENDPOINT_SLICES))["metadata"]["annotations"]["note"] == "x"

    play(scenario)


def test_a_refusal_is_told_and_the_others_are_registered(cluster: Cluster) -> None:
    """A missing permission concerns one service, and is asked for again with the next heartbeat."""

    async def scenario() -> None:
        cluster.services = [CODER, CHAT]
        cluster.plane.fail(
            "get", UnauthorizedError("may not get services", "apply the manifests", status=403)
        )
        async with cluster.agent() as loop:
            assert states(loop) == ["refused", "ready"]
            assert loop.snapshot()[0]["reason"] == "may not get services. apply the manifests"
            await cluster.clock.run_for(30)
            assert states(loop) == ["ready", "ready"]

    play(scenario)


def test_a_planned_silence_begins_with_a_good_bye(cluster: Cluster) -> None:
    """Nothing is sent to a host that sleeps; its Services keep their addresses, and it is back at once."""

    async def scenario() -> None:
        async with cluster.agent() as loop:
            service = await cluster.get(SERVICES)
            cluster.plane.fail("patch", ConflictError("modified", status=409))
            await loop.part()
            assert not await cluster.is_ready()
            assert states(loop) == ["withdrawn"]
            cluster.services = [replace(CODER, is_ready=False)]
            await cluster.news(loop)
            cluster.services = [CODER]
            await cluster.clock.run_for(60)
            assert not await cluster.is_ready()
            loop.speak_again()
            await cluster.clock.settle()
            assert await cluster.is_ready()
            assert await cluster.get(SERVICES) == service

    play(scenario)


def test_a_good_bye_is_said_for_what_an_earlier_agent_has_registered(cluster: Cluster) -> None:
    """An agent that stops before its first word does not leave its host in service; nor does it another's."""

    async def scenario() -> None:
        async with cluster.agent():
            assert await cluster.is_ready()
        await cluster.loop(node="peer").part()
        assert await cluster.is_ready()
        await cluster.loop().part()
        assert not await cluster.is_ready()
        calls = len(cluster.plane.calls)
        await cluster.loop(None).part()
        assert len(cluster.plane.calls) == calls

    play(scenario)


def test_a_good_bye_that_is_not_heard_holds_nobody_up(cluster: Cluster) -> None:
    """It is tried once."""

    async def scenario() -> None:
        async with cluster.agent() as loop:
            cluster.plane.down = UnreachableError("no route")
            await loop.part()
            assert states(loop) == ["ready"]

    play(scenario)


def test_who_is_not_reachable_any_more_takes_everything_back(cluster: Cluster) -> None:
    """Also after a restart, as often as it takes; who never was asks the control plane nothing."""

    async def scenario() -> None:
        async with cluster.agent(None):
            assert cluster.plane.calls == []
        cluster.services = [CODER, CHAT]
        async with cluster.agent():
            assert await cluster.has(SERVICES)
        cluster.plane.fail("delete", ControlPlaneError("busy", status=503))
        cluster.are_known = False
        async with cluster.agent(None) as loop:
            await cluster.clock.run_for(5)
            assert loop.snapshot() == []
            for kind in (SERVICES, ENDPOINT_SLICES):
                assert not await cluster.has(kind)
                assert not await cluster.has(kind, "chat", "work")
        calls = len(cluster.plane.calls)
        async with cluster.agent(None):
            await cluster.clock.run_for(60)
            assert len(cluster.plane.calls) == calls

    play(scenario)


@pytest.mark.parametrize("reach", [None, REACH], ids=["not reachable any more", "reachable"])
def test_where_nothing_may_be_looked_for_the_next_agent_asks_again(
    cluster: Cluster, reach: Reach | None
) -> None:
    """It is asked once, keeps nothing else from being done, and is not forgotten."""

    async def scenario() -> None:
        cluster.services = [CHAT]
        async with cluster.agent():
            assert await cluster.has(SERVICES, "chat", "work")
        cluster.services = [] if reach is None else [CODER]
        refusal = UnauthorizedError("may not list", status=403)
        # In the namespace `default`, if that is looked into, and in `work`.
        cluster.plane.fail("list", *([None, None] if reach else []), refusal)
        async with cluster.agent(reach) as loop:
            await cluster.clock.run_for(60)
            lists = [call for call in cluster.plane.calls if call[0] == "list"]
            assert states(loop) == ([] if reach is None else ["ready"])
            assert await cluster.has(SERVICES, "chat", "work")
            await cluster.clock.run_for(60)
            assert len([call for call in cluster.plane.calls if call[0] == "list"]) == len(lists)
        async with cluster.agent(reach):
            assert not await cluster.has(SERVICES, "chat", "work")

    play(scenario)


def test_an_address_of_the_other_family_is_another_slice(cluster: Cluster) -> None:
    """The type of a slice cannot be changed; the Service keeps its own address."""

    async def scenario() -> None:
        async with cluster.agent():
            service = await cluster.get(SERVICES)
        async with cluster.agent(Reach("fd00::7", 6482, ("fd00::/8",))):
            slice_ = await cluster.get(ENDPOINT_SLICES)
            assert (slice_["addressType"], slice_["endpoints"][0]["addresses"]) == ("IPv6", ["fd00::7"])
            assert (await cluster.get(SERVICES))["metadata"]["uid"] == service["metadata"]["uid"]

    play(scenario)

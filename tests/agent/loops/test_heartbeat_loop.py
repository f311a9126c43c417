"""The heartbeat: one request, honest about holds, and at home after every mishap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.core.beat import Identity
from journeyman.core.gates.conditions import Told
from journeyman.core.holds import Hold, Holds, Owner
from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    NameTakenError,
    UnauthorizedError,
    UnreachableError,
)
from journeyman.loops.heartbeat_loop import NODES, HeartbeatLoop, NodeView
from journeyman.model.fleet_node import INSTANCE_ANNOTATION, Accelerator, Capability, FleetNode
from journeyman.model.meta import ConditionStatus, format_time
from journeyman.settings import Settings
from tests.support.clock import START, FakeClock
from tests.support.fake_control_plane import FakeControlPlane

ME = Identity(
    node_name="desk-mac",
    instance="instance-1",
    labels={"journeyman.dev/agent": "true"},
    roles=("worker",),
    version="0.1.0",
    os="darwin",
    arch="arm64",
    updates_by_release=True,
)
CAPABILITY = Capability(
    accelerator=Accelerator.METAL,
    total_ram_gb=64,
    available_ram_gb=40,
    installed_models=("smol",),
    max_context_tokens=4096,
    tokens_per_second=0,
)


@dataclass
class Bench:
    """A heartbeat loop on a fake plane, and the knobs of a test."""

    root: Path
    plane: FakeControlPlane = field(default_factory=FakeControlPlane)
    clock: FakeClock = field(default_factory=FakeClock)
    holds: Holds = field(default_factory=Holds)
    seen: list[FleetNode] = field(default_factory=list)
    attempts: int = 0
    told: tuple[Told, ...] = ()
    updatable: str = "true"
    models: str | None = ""

    def loop(self, identity: Identity = ME) -> HeartbeatLoop:
        return HeartbeatLoop(
            plane=self.plane,
            clock=self.clock,
            identity=identity,
            memory=JsonFile(self.root / "node-memory.json"),
            settings=Settings(state_root=self.root),
            view=NodeView(
                holds=self._live_holds,
                capability=lambda: CAPABILITY,
                told=lambda: self.told,
                updatable=lambda: self.updatable,
                models=lambda: self.models,
            ),
            accepted=self.seen.append,
            attempted=self._count,
        )

    def _count(self) -> None:
        self.attempts += 1

    def _live_holds(self, now: datetime) -> Holds:
        return self.holds.live(now)

    async def node(self) -> dict[str, Any]:
        return await self.plane.get(NODES.named(ME.node_name))

    async def touch(self, patch: dict[str, Any], *, subresource: str = "") -> None:
        await self.plane.patch(NODES.named(ME.node_name), patch, subresource=subresource)

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[HeartbeatLoop]:
        loop = self.loop()
        running = asyncio.create_task(loop.run())
        await self.clock.settle()
        try:
            yield loop
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_registers_with_our_label_and_beats_ready_with_every_field(bench: Bench) -> None:
    """A node that does not exist is POSTed with our label, and its first beat says all we know."""

    async def scenario() -> None:
        async with bench.beating():
            node = await bench.node()
        assert node["metadata"]["labels"] == {
            "journeyman.dev/agent": "true",
            "journeyman.dev/updatable": "true",
        }
        assert node["spec"] == {"nodeName": "desk-mac", "roles": ["worker"]}
        status = node["status"]
        assert status["phase"] == "Ready"
        assert status["lastHeartbeatTime"] == "2026-01-01T12:00:00Z"
        assert status["capability"]["installedModels"] == ["smol"]
        assert (status["agentKind"], status["os"], status["arch"]) == ("foreman-agent", "darwin", "arm64")

    run(scenario())


def test_a_heartbeat_is_one_request(bench: Bench) -> None:
    """After registration an hour of beats costs one PATCH each, at least every 30 s, and nothing else."""

    async def scenario() -> None:
        async with bench.beating():
            bench.plane.calls.clear()
            await bench.clock.run_for(3600)
        assert {verb for verb, _ in bench.plane.calls} == {"patch_status"}
        assert 120 <= len(bench.plane.calls) <= 135

    run(scenario())


def test_never_writes_what_the_operator_owns(bench: Bench) -> None:
    """currentTask, updateRequest and the operator's conditions survive every beat of ours."""

    async def scenario() -> None:
        async with bench.beating():
            ready = {
                "type": "Ready",
                "status": "True",
                "reason": "HeartbeatFresh",
                "message": "",
                "lastTransitionTime": format_time(START),
            }
            theirs = {"currentTask": "default/a", "conditions": [ready]}
            await bench.touch({"status": theirs}, subresource="status")
            bench.holds = bench.holds.with_hold(Hold(Owner.USER, "lunch", START))
            await bench.clock.run_for(61)
            status = (await bench.node())["status"]
        assert status["currentTask"] == "default/a"
        assert {each["type"] for each in status["conditions"]} == {"Ready", "Held"}
        assert ready in status["conditions"]

    run(scenario())


def test_draining_while_held_with_beats_going_on_and_the_reason_told_once(bench: Bench) -> None:
    """A hold makes the node Draining at the next beat; a hold that ends by itself makes it Ready again."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            until = START + timedelta(minutes=5)
            bench.holds = bench.holds.with_hold(Hold(Owner.USER, "lunch", START, until))
            loop.beat_soon()
            await bench.clock.settle()
            held = await bench.node()
            bench.plane.calls.clear()
            await bench.clock.run_for(240)
            writes_while_held = len(bench.plane.calls)
            await bench.clock.run_for(120)
            lifted = await bench.node()
        assert held["status"]["phase"] == "Draining"
        assert held["status"]["conditions"][0]["message"] == "user: lunch until 2026-01-01T12:05:00Z"
        assert writes_while_held <= 9
        assert lifted["status"]["phase"] == "Ready"
        assert lifted["status"]["conditions"][0]["status"] == "False"

    run(scenario())


def test_gates_are_told_on_transitions_alone(bench: Bench) -> None:
    """A condition and the update label are written when they change, and keep others' conditions."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            hot = Told("ThermalPressure", ConditionStatus.TRUE, "ThermalThrottled", "97 C, marks 85 and 95")
            bench.told, bench.updatable = (hot,), "false"
            loop.beat_soon()
            await bench.clock.settle()
            node = await bench.node()
            bench.plane.calls.clear()
            await bench.clock.run_for(300)
            assert {verb for verb, _ in bench.plane.calls} == {"patch_status"}
            assert len(bench.plane.calls) <= 12
        told = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        assert told == {"Held": "False", "ThermalPressure": "True"}
        assert node["metadata"]["labels"]["journeyman.dev/updatable"] == "false"

    run(scenario())


def test_what_was_measured_of_the_models_is_told_once(bench: Bench) -> None:
    """An annotation says it when it changes, keeps it while there is no news, and goes with the models."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            bench.plane.calls.clear()
            found = []
            for models in ('{"smol":{"tokensPerSecond":3.0}}', None, ""):
                bench.models = models
                for _ in range(2):
                    loop.beat_soon()
                    await bench.clock.settle()
                found.append((await bench.node())["metadata"]["annotations"].get("journeyman.dev/models"))
        assert found == ['{"smol":{"tokensPerSecond":3.0}}'] * 2 + [None]
        assert [verb for verb, _ in bench.plane.calls if verb == "patch"] == ["patch"] * 2

    run(scenario())


def test_a_deleted_node_comes_back_with_its_foreign_labels(bench: Bench) -> None:
    """A 404 is mended by a POST that restores the labels that others had put on the node."""

    async def scenario() -> None:
        async with bench.beating():
            await bench.touch({"metadata": {"labels": {"rack": "b2"}}})
            await bench.clock.run_for(31)
            await bench.plane.delete(NODES.named(ME.node_name))
            await bench.clock.run_for(35)
            node = await bench.node()
        assert node["metadata"]["labels"] == {
            "journeyman.dev/agent": "true",
            "journeyman.dev/updatable": "true",
            "rack": "b2",
        }
        assert node["status"]["phase"] == "Ready"

    run(scenario())


def test_a_deleted_node_comes_back_with_its_foreign_roles_and_its_cordon(bench: Bench) -> None:
    """What an administrator asked of the node is asked of the new one, too; what is ours is not doubled."""

    async def scenario() -> None:
        async with bench.beating():
            given = {"spec": {"roles": ["worker", "verifier"]}}
            cordon = {"metadata": {"annotations": {"journeyman.dev/cordon": "2026-01-02T00:00:00Z disk"}}}
            await bench.touch(given | cordon)
            await bench.clock.run_for(31)
            await bench.plane.delete(NODES.named(ME.node_name))
            await bench.clock.run_for(35)
            node = await bench.node()
        assert node["spec"]["roles"] == ["worker", "verifier"]
        assert node["metadata"]["annotations"]["journeyman.dev/cordon"] == "2026-01-02T00:00:00Z disk"

    run(scenario())


def test_a_role_that_others_gave_stays_and_one_of_ours_can_be_taken_back(bench: Bench) -> None:
    """A start writes the roles of the settings, and leaves those that it never wrote."""

    async def scenario() -> None:
        async with bench.beating():
            await bench.touch({"spec": {"roles": ["worker", "verifier"]}})
            await bench.clock.run_for(31)
        running = asyncio.create_task(bench.loop(replace(ME, roles=("builder",))).run())
        await bench.clock.settle()
        assert (await bench.node())["spec"]["roles"] == ["builder", "verifier"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario())


def test_somebody_else_wrote_while_we_registered(bench: Bench) -> None:
    """A conflict ends nothing: the node is read again, and the beat lands seconds later."""

    async def scenario() -> None:
        body = {"metadata": {"name": ME.node_name, "labels": {"rack": "b2"}}, "spec": {"nodeName": "old"}}
        await bench.plane.create(NODES, body)
        bench.plane.fail("patch", ConflictError("changed", status=409))
        async with bench.beating():
            assert bench.seen == []
            await bench.clock.run_for(2)
            assert len(bench.seen) == 1
            assert (await bench.node())["metadata"]["labels"]["rack"] == "b2"

    run(scenario())


def test_conditions_that_somebody_overtook_are_written_with_the_next_beat(bench: Bench) -> None:
    """They are read, changed and written under a resourceVersion, and never cost the beat itself."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            bench.told = (Told("ThermalPressure", ConditionStatus.TRUE, "ThermalThrottled", "97 C"),)
            bench.plane.fail("patch_status", None, ConflictError("changed", status=409))
            loop.beat_soon()
            await bench.clock.settle()
            beats = len(bench.seen)
            assert "ThermalPressure" not in str((await bench.node())["status"]["conditions"])
            await bench.clock.run_for(31)
            assert len(bench.seen) == beats + 1
            assert "ThermalPressure" in str((await bench.node())["status"]["conditions"])

    run(scenario())


def test_agent_kind_is_unset_until_releases_may_select_this_node(bench: Bench) -> None:
    """Whoever has not switched that on is no target of another program's releases."""

    async def scenario() -> None:
        running = asyncio.create_task(bench.loop(replace(ME, updates_by_release=False)).run())
        await bench.clock.settle()
        assert "agentKind" not in (await bench.node())["status"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(scenario())


def test_an_existing_node_keeps_its_foreign_labels(bench: Bench) -> None:
    """Registration writes only the labels and the spec that are ours."""

    async def scenario() -> None:
        body = {
            "metadata": {"name": ME.node_name, "labels": {"rack": "b2", "journeyman.dev/agent": "no"}},
            "spec": {"nodeName": "old"},
        }
        await bench.plane.create(NODES, body)
        async with bench.beating():
            node = await bench.node()
        assert node["metadata"]["labels"]["rack"] == "b2"
        assert node["metadata"]["labels"]["journeyman.dev/agent"] == "true"
        assert node["spec"] == {"nodeName": "desk-mac", "roles": ["worker"]}

    run(scenario())


@pytest.mark.parametrize("annotations", [{}, {INSTANCE_ANNOTATION: "instance-2"}])
def test_another_agent_under_our_name_is_refused(bench: Bench, annotations: dict[str, str]) -> None:
    """A fresh heartbeat that is not ours ends us before we have written anything."""

    async def scenario() -> None:
        metadata = {"name": ME.node_name, "annotations": annotations}
        await bench.plane.create(NODES, {"metadata": metadata, "spec": {"nodeName": ME.node_name}})
        beat = {"phase": "Ready", "lastHeartbeatTime": format_time(START - timedelta(seconds=20))}
        await bench.touch({"status": beat}, subresource="status")
        before = await bench.node()
        with pytest.raises(NameTakenError, match="desk-mac"):
            await bench.loop().run()
        assert await bench.node() == before

    run(scenario())


def test_a_stale_node_of_another_installation_is_taken_over(bench: Bench) -> None:
    """A reinstalled host gets its node back once the old heartbeat is over 90 s old."""

    async def scenario() -> None:
        metadata = {"name": ME.node_name, "annotations": {INSTANCE_ANNOTATION: "instance-0"}}
        await bench.plane.create(NODES, {"metadata": metadata, "spec": {"nodeName": ME.node_name}})
        beat = {"phase": "Ready", "lastHeartbeatTime": format_time(START - timedelta(seconds=91))}
        await bench.touch({"status": beat}, subresource="status")
        async with bench.beating():
            node = await bench.node()
        assert node["metadata"]["annotations"] == {INSTANCE_ANNOTATION: "instance-1"}

    run(scenario())


def test_a_lost_api_ends_nothing_and_the_next_beat_comes_soon_after_it_is_back(bench: Bench) -> None:
    """An outage of an hour is survived, and a beat lands within one interval of its end."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            await bench.plane.lose(UnreachableError("connection refused"))
            await bench.clock.run_for(3600)
            assert "connection refused" in loop.last_error
            assert loop.last_error_word == "Unreachable"
            assert bench.attempts == loop.attempts > loop.acceptances == 1
            bench.plane.down = None
            await bench.clock.run_for(30)
            beat = (await bench.node())["status"]["lastHeartbeatTime"]
            # Told to the second: a beat in the first second of the return bears its time.
            assert beat >= format_time(START + timedelta(seconds=3600))
            assert loop.last_error == ""

    run(scenario())


def test_a_credential_that_never_worked_ends_the_agent(bench: Bench) -> None:
    """Who was never let in was set up wrongly, and is told so at once."""

    async def scenario() -> None:
        bench.plane.fail("get", UnauthorizedError("the token is wrong", status=401))
        with pytest.raises(UnauthorizedError):
            await bench.loop().run()

    run(scenario())


def test_a_credential_that_has_expired_ends_nothing(bench: Bench) -> None:
    """Who was let in before goes on, as tokens are renewed while we run."""

    async def scenario() -> None:
        async with bench.beating():
            await bench.plane.lose(UnauthorizedError("the token has expired", status=401))
            await bench.clock.run_for(600)
            bench.plane.down = None
            accepted = len(bench.seen)
            await bench.clock.run_for(31)
            assert len(bench.seen) > accepted

    run(scenario())


def test_a_beat_that_failed_once_is_repeated_within_seconds(bench: Bench) -> None:
    """One failure costs seconds, not an interval: the operator gives a node 90 s."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            bench.plane.fail("patch_status", UnreachableError("reset"))
            loop.beat_soon()
            await bench.clock.settle()
            accepted = len(bench.seen)
            await bench.clock.run_for(1)
            assert len(bench.seen) == accepted + 1

    run(scenario())


@pytest.mark.parametrize(("asked", "waits"), [(20, 20), (600, 30)])
def test_a_server_that_asks_for_patience_gets_it_as_far_as_claims_allow(
    bench: Bench, asked: int, waits: int
) -> None:
    """Retry-After is honoured up to an interval, as claims live by our beats."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            busy = ControlPlaneError("busy", status=429, retry_after_seconds=asked)
            bench.plane.fail("patch_status", busy)
            loop.beat_soon()
            await bench.clock.settle()
            accepted = len(bench.seen)
            await bench.clock.run_for(waits - 1)
            assert len(bench.seen) == accepted
            await bench.clock.run_for(2)
            assert len(bench.seen) == accepted + 1

    run(scenario())


def test_the_time_of_a_beat_is_the_servers(bench: Bench) -> None:
    """A host whose clock is two minutes behind beats with the server's time, and so stays fresh."""

    async def scenario() -> None:
        bench.plane.offset_seconds = 120.0
        async with bench.beating():
            beat = (await bench.node())["status"]["lastHeartbeatTime"]
        assert beat == format_time(START + timedelta(seconds=120))

    run(scenario())


def test_the_parting_beat_is_stale_at_once_and_not_draining(bench: Bench) -> None:
    """Going silent on purpose leaves a node that is skipped at once and is never reaped."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            pass
        await loop.part(work_goes_on=False)
        node = FleetNode.from_wire(await bench.node())
        assert node.status.phase == "NotReady"
        assert node.heartbeat_is_stale(START)

    run(scenario())


def test_nothing_is_said_after_the_parting_beat(bench: Bench) -> None:
    """A beat that is asked for at the moment of parting does not bring the node back."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            loop.beat_soon()
            await loop.part(work_goes_on=False)
            await bench.clock.run_for(120)
        assert (await bench.node())["status"]["phase"] == "NotReady"

    run(scenario())


def test_parting_while_workers_go_on_keeps_their_claims(bench: Bench) -> None:
    """A stop with work in flight says Draining with a fresh beat, so that no claim lapses at once."""

    async def scenario() -> None:
        async with bench.beating() as loop:
            pass
        bench.holds = bench.holds.with_hold(Hold(Owner.SHUTDOWN, "the agent stops", START))
        await loop.part(work_goes_on=True)
        node = FleetNode.from_wire(await bench.node())
        assert node.status.phase == "Draining"
        assert not node.heartbeat_is_stale(START)

    run(scenario())

"""Endings: kept before the first attempt, written once, never dropped in silence."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.durable_json import JsonSpool
from journeyman.core.delivery import Delivery
from journeyman.core.task_patches import Ending
from journeyman.core.task_plan import Claim
from journeyman.errors import ControlPlaneError, InvalidError, UnreachableError
from journeyman.loops.outbox_loop import OutboxLoop
from journeyman.model.agentic_task import TaskPhase, TaskVerdict
from journeyman.model.meta import format_time
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Collection
from journeyman.settings import Settings
from tests.support.clock import START, FakeClock
from tests.support.fake_control_plane import FakeControlPlane

TASKS = Collection(AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, "default")
NAME = "colours"


@dataclass
class Bench:
    """An outbox on a fake plane that has one task of ours."""

    root: Path
    plane: FakeControlPlane = field(default_factory=FakeControlPlane)
    clock: FakeClock = field(default_factory=FakeClock)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def outbox(self) -> OutboxLoop:
        return OutboxLoop(
            plane=self.plane,
            clock=self.clock,
            spool=JsonSpool(self.root / "outbox"),
            settings=Settings(state_root=self.root),
            node_name="me",
            seen=self.seen.append,
        )

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[OutboxLoop]:
        outbox = self.outbox()
        outbox.load()
        running = asyncio.create_task(outbox.run())
        try:
            yield outbox
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def claimed_task(self) -> Delivery:
        await self.plane.create(TASKS, {"metadata": {"name": NAME}, "spec": {"kind": "freeform"}})
        status = {"phase": "Running", "assignedNode": "me", "claimedAt": format_time(START)}
        await self.set_status(status)
        uid = (await self.task())["metadata"]["uid"]
        ending = Ending(
            TaskPhase.SUCCEEDED, TaskVerdict.GO, None, {"schemaVersion": "foreman.v1"}, "red", START
        )
        return Delivery(Claim("default", NAME, uid, START), ending)

    async def task(self) -> dict[str, Any]:
        return await self.plane.get(TASKS.named(NAME))

    async def set_status(self, status: dict[str, Any]) -> None:
        await self.plane.patch(TASKS.named(NAME), {"status": status}, subresource="status")

    def on_disk(self, folder: str = "outbox") -> list[str]:
        return [path.name for path in (self.root / folder).glob("*.json")]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_an_ending_is_written_whole_and_then_forgotten(bench: Bench) -> None:
    """Phase, verdict, result, time and condition land in one patch, and the disk is clean after it."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
            assert outbox.claims() == []
        status = (await bench.task())["status"]
        assert (status["phase"], status["verdict"]) == ("Succeeded", "GO")
        assert status["finishedAt"] == "2026-01-01T12:00:00Z"
        assert status["result"] == {"schemaVersion": "foreman.v1"}
        assert status["conditions"][0]["reason"] == "ExecutorSucceeded"
        assert bench.on_disk() == []

    run(scenario())


def test_an_ending_is_on_disk_before_anything_is_sent(bench: Bench) -> None:
    """With the API lost the ending waits on disk, and the next agent delivers it."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        await bench.plane.lose(UnreachableError("no route"))
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            assert bench.on_disk() == [f"{delivery.entry_id}.json"]
            await bench.clock.run_for(1800)
        bench.plane.down = None
        async with bench.delivering() as outbox:
            assert outbox.claims() == [delivery.claim]
            await bench.clock.settle()
        assert (await bench.task())["status"]["verdict"] == "GO"
        assert bench.on_disk() == []

    run(scenario())


def test_attempts_thin_out_but_never_stop(bench: Bench) -> None:
    """An outage of two hours costs at most a request a second at first and one in a minute later on."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        await bench.plane.lose(UnreachableError("no route"))
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            bench.plane.calls.clear()
            await bench.clock.run_for(7200)
            assert 100 < len(bench.plane.calls) < 700
            bench.plane.down = None
            await bench.clock.run_for(61)
        assert (await bench.task())["status"]["verdict"] == "GO"

    run(scenario())


def test_retry_after_is_honoured(bench: Bench) -> None:
    """A server that asks for two minutes gets two minutes."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        busy = ControlPlaneError("busy", status=429, retry_after_seconds=120)
        bench.plane.fail("get", busy)
        async with bench.delivering() as outbox:
            bench.plane.calls.clear()
            outbox.put(delivery)
            await bench.clock.run_for(119)
            assert len(bench.plane.calls) == 1
            await bench.clock.run_for(2)
        assert (await bench.task())["status"]["verdict"] == "GO"

    run(scenario())


@pytest.mark.parametrize(
    "theirs",
    [
        {"assignedNode": "you"},
        {"claimedAt": "2026-01-01T12:00:30Z"},
        {"phase": "Pending", "assignedNode": None, "claimedAt": None},
    ],
)
def test_nothing_is_written_once_the_claim_is_lost(bench: Bench, theirs: dict[str, Any]) -> None:
    """A result that comes after the claim moved on overwrites nobody's."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        await bench.set_status(theirs)
        before = await bench.task()
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
        assert await bench.task() == before
        assert bench.on_disk() == []

    run(scenario())


def test_a_reply_that_was_lost_does_not_write_twice(bench: Bench) -> None:
    """When the patch landed and only its reply did not, the next attempt sees that and is content."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
            landed = await bench.task()
            outbox.put(delivery)
            await bench.clock.settle()
        assert await bench.task() == landed
        assert bench.on_disk() == []

    run(scenario())


def test_a_refused_ending_falls_back_to_one_that_ends_the_task(bench: Bench) -> None:
    """A 422 must not wedge the node: the task ends INCOMPLETE and keeps its result."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        bench.plane.fail("patch_status", InvalidError("verdict: Unsupported value", status=422))
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
        status = (await bench.task())["status"]
        assert (status["phase"], status["verdict"]) == ("Failed", "INCOMPLETE")
        assert status["failureReason"] == "InfrastructureError"
        assert status["conditions"][0]["reason"] == "TerminalPatchRejected"
        assert status["result"] == {"schemaVersion": "foreman.v1"}

    run(scenario())


def test_what_is_refused_for_ever_is_set_aside_and_holds_up_nothing(bench: Bench) -> None:
    """An ending that not even the fallback lands is kept for a person, out of the way."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        refusal = InvalidError("no", status=422)
        bench.plane.fail("patch_status", refusal, refusal, refusal)
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
            assert outbox.claims() == []
        assert bench.on_disk() == []
        assert bench.on_disk("outbox/set-aside") == [f"{delivery.entry_id}.json"]

    run(scenario())


def test_a_result_that_is_too_large_ends_the_task_without_it(bench: Bench) -> None:
    """The task must not run here for ever; its result stays on our disk, with the reason."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        too_large = InvalidError("request is too large", status=413)
        bench.plane.fail("patch_status", too_large, too_large)
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
            [letter] = outbox.dead_letters()
        status = (await bench.task())["status"]
        assert (status["phase"], status["verdict"]) == ("Failed", "INCOMPLETE")
        assert "result" not in status
        assert "too large" in letter.why
        assert letter.value == delivery.to_json()

    run(scenario())


def test_a_late_result_is_kept_with_the_reason(bench: Bench) -> None:
    """Hours of work are not thrown away in silence: a person may still want to read what came of them."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        await bench.set_status({"assignedNode": "you", "claimedAt": "2026-01-01T13:00:00Z"})
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
            [letter] = outbox.dead_letters()
        assert letter.why == "it came too late, the claim was lost: it is Running on you"
        assert letter.value is not None
        assert letter.value["claim"]["name"] == NAME

    run(scenario())


def test_an_end_that_is_not_ours_is_not_taken_for_ours(bench: Bench) -> None:
    """A controller that gives up on a task may leave our claim on it; our result did not land then."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        await bench.set_status({"phase": "Failed", "finishedAt": "2026-01-01T13:00:00Z"})
        before = await bench.task()
        async with bench.delivering() as outbox:
            outbox.put(delivery)
            await bench.clock.settle()
            assert len(outbox.dead_letters()) == 1
        assert await bench.task() == before

    run(scenario())


def test_the_newest_hundred_dead_letters_are_kept(tmp_path: Path) -> None:
    """A folder that nobody looks into fills no disk."""
    spool = JsonSpool(tmp_path)
    for number in range(103):
        spool.put(f"e{number}", {"number": number})
        os.utime(tmp_path / f"e{number}.json", (number, number))
        spool.set_aside(f"e{number}", f"reason {number}")
    letters = spool.dead_letters()
    assert [letter.value for letter in letters] == [{"number": number} for number in range(3, 103)]
    assert letters[-1].why == "reason 102"
    assert len(list((tmp_path / "set-aside").iterdir())) == 200


def test_endings_of_one_task_go_out_in_turn(bench: Bench) -> None:
    """The second waits until the first is settled, whatever holds that one up."""

    async def scenario() -> None:
        first = await bench.claimed_task()
        again = replace(first, claim=replace(first.claim, claimed_at=START + timedelta(minutes=5)))
        bench.plane.fail("get", ControlPlaneError("busy", status=503, retry_after_seconds=60))
        async with bench.delivering() as outbox:
            outbox.put(first)
            outbox.put(again)
            bench.plane.calls.clear()
            await bench.clock.run_for(59)
            assert len(bench.plane.calls) == 1
            await bench.clock.run_for(2)
            assert [verb for verb, _ in bench.plane.calls] == ["get", "get", "patch_status", "get"]

    run(scenario())


def test_a_torn_entry_is_set_aside_and_the_rest_is_delivered(bench: Bench) -> None:
    """One unreadable file in the outbox stops nobody."""

    async def scenario() -> None:
        delivery = await bench.claimed_task()
        bench.outbox().put(delivery)
        (bench.root / "outbox" / "torn.json").write_text('{"format": 1, "cla')
        (bench.root / "outbox" / "alien.json").write_text('{"format": 1}')
        async with bench.delivering():
            await bench.clock.settle()
        assert (await bench.task())["status"]["verdict"] == "GO"
        assert sorted(bench.on_disk("outbox/set-aside")) == ["alien.json", "torn.json"]

    run(scenario())

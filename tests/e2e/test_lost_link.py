"""Half an hour without the control plane, on the product's own intervals and a real plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.model.agentic_task import CLAIM_EXPIRIES_ANNOTATION
from journeyman.model.resources import AGENTIC_TASKS
from journeyman_plane.ports import Key
from tests.support.bad_network import Answering, Node
from tests.support.fault_proxy import FaultProxy, Schedule, fault_proxy
from tests.support.plane import RunningPlane, agentic_task, plane_in_this_loop
from tests.support.virtual_time import VirtualClock, run_virtually

MINUTE = 60.0
WORK_SECONDS = 10 * MINUTE
OUTAGE_SECONDS = 30 * MINUTE
SOUND = 0


@dataclass
class Place:
    """A node of its own link to the plane."""

    node: Node
    link: FaultProxy


@asynccontextmanager
async def place(name: str, plane: RunningPlane, folder: Path) -> AsyncIterator[Place]:
    """A node whose tasks take ten minutes, at work until the end of the block."""
    async with fault_proxy(plane.url, Schedule(SOUND, requests=0), VirtualClock()) as link:
        node = Node(name, link.url, plane.token_file, folder / name, "default", Answering(WORK_SECONDS))
        async with node.living():
            yield Place(node, link)


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[tuple[RunningPlane, Place]]:
    """A plane and a node that has begun the task."""
    async with plane_in_this_loop(folder, VirtualClock()) as plane, place("a", plane, folder) as at:
        submit(plane)
        await until_running(plane, "a")
        yield plane, at


def submit(plane: RunningPlane) -> None:
    """One task, for whoever is there."""
    head = {"apiVersion": AGENTIC_TASKS.api_version, "kind": AGENTIC_TASKS.kind}
    plane.store.create(_key(), head | agentic_task("long"))


def task(plane: RunningPlane) -> dict[str, Any]:
    """The task now."""
    found: dict[str, Any] = plane.store.get(_key())
    return {"status": {}} | found


def _key() -> Key:
    return Key(AGENTIC_TASKS.group, AGENTIC_TASKS.plural, "default", "long")


async def until(condition: Callable[[], bool], within_seconds: float = 120) -> None:
    """Waits for it in virtual time."""
    async with asyncio.timeout(within_seconds):
        while not condition():
            await VirtualClock().sleep(1)


async def until_running(plane: RunningPlane, name: str) -> None:
    await until(lambda: task(plane)["status"].get("assignedNode") == name and _phase(plane) == "Running")


def _phase(plane: RunningPlane) -> str:
    return str(task(plane)["status"].get("phase"))


def run(scenario: Callable[[], Any]) -> None:
    run_virtually(scenario(), within_seconds=4 * 3600)


def test_the_plane_is_away_for_half_an_hour_and_the_result_arrives(quick_folder: Path) -> None:
    """Where nobody could take the claim away, work goes on, and its result lands once the link heals."""

    async def scenario() -> None:
        async with at_work(quick_folder) as (plane, at):
            await asyncio.sleep(2 * MINUTE)
            # The host of the plane goes down with all its reconcilers.
            plane.plane.stop()
            at.link.cut = True
            await asyncio.sleep(OUTAGE_SECONDS)
            assert len(at.node.workers.ran) == 1
            assert at.node.tasks is not None
            assert len(at.node.tasks.outbox.claims()) == 1
            async with plane_in_this_loop(quick_folder, VirtualClock()) as again:
                at.link.port = int(again.url.rpartition(":")[2])
                at.link.cut = False
                await until(lambda: _phase(again) == "Succeeded")
                found = task(again)
                assert found["status"]["result"]["extra"]["modelExtra"]["answer"] == "the answer to long"
                assert CLAIM_EXPIRIES_ANNOTATION not in found["metadata"].get("annotations", {})
                assert at.node.workers.ran == ["long"]
                await until(lambda: at.node.tasks is not None and not at.node.tasks.outbox.claims())
                assert at.node.tasks.outbox.dead_letters() == []

    run(scenario)


def test_a_node_that_is_cut_off_loses_its_task_and_says_so(quick_folder: Path) -> None:
    """The claim moves to a node that can be heard; what the other one brings later changes nothing."""

    async def scenario() -> None:
        async with at_work(quick_folder) as (plane, first), place("b", plane, quick_folder) as second:
            await asyncio.sleep(2 * MINUTE)
            first.link.cut = True
            await until_running(plane, "b")
            await until(lambda: _phase(plane) == "Succeeded", within_seconds=WORK_SECONDS + 60)
            ended = task(plane)
            await asyncio.sleep(OUTAGE_SECONDS - WORK_SECONDS)
            first.link.cut = False
            assert first.node.tasks is not None
            outbox = first.node.tasks.outbox
            await until(lambda: not outbox.claims())
            assert task(plane) == ended
            [letter] = outbox.dead_letters()
            assert "came too late" in letter.why
            assert "Succeeded on b" in letter.why
            assert (first.node.workers.ran, second.node.workers.ran) == (["long"], ["long"])

    run(scenario)


def test_a_lone_node_that_was_cut_off_runs_its_task_again(quick_folder: Path) -> None:
    """The claim expired while nobody could be asked, so the old result is refused and the new one counts."""

    async def scenario() -> None:
        async with at_work(quick_folder) as (plane, at):
            claimed = task(plane)["status"]["claimedAt"]
            at.link.cut = True
            await asyncio.sleep(OUTAGE_SECONDS)
            assert _phase(plane) == "Pending"
            at.link.cut = False
            await until_running(plane, "a")
            assert task(plane)["status"]["claimedAt"] != claimed
            await until(lambda: _phase(plane) == "Succeeded", within_seconds=WORK_SECONDS + 60)
            assert at.node.tasks is not None
            assert ["came too late" in letter.why for letter in at.node.tasks.outbox.dead_letters()] == [True]
            assert at.node.workers.ran == ["long", "long"]
            assert task(plane)["metadata"]["annotations"][CLAIM_EXPIRIES_ANNOTATION] == "1"

    run(scenario)


def test_a_minute_without_the_plane_costs_nothing(quick_folder: Path) -> None:
    """An outage that is shorter than the lease is not noticed: one claim, one run, one result."""

    async def scenario() -> None:
        async with at_work(quick_folder) as (plane, at):
            claimed = task(plane)["status"]["claimedAt"]
            for _ in range(4):
                at.link.cut = True
                await asyncio.sleep(45)
                at.link.cut = False
                await asyncio.sleep(45)
            await until(lambda: _phase(plane) == "Succeeded", within_seconds=WORK_SECONDS)
            assert task(plane)["status"]["claimedAt"] == claimed
            assert at.node.workers.ran == ["long"]

    run(scenario)

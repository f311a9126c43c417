"""The loop on the real SQLite store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.model.fleet_node import FleetNodePhase
from journeyman.model.resources import AGENTIC_TASKS, FLEET_NODES
from journeyman_plane.adapters.sqlite_store import SqliteStore
from journeyman_plane.core.actions import Chain, PatchAnnotations, PatchStatus
from journeyman_plane.core.world import World
from journeyman_plane.loops.reconcile_loop import (
    RECONCILERS,
    Follower,
    Reconciler,
    carry_out,
    run_reconcilers,
)
from tests.support.plane_objects import SPLIT, PlaneInMemory, key

# Far longer than any test: whatever happens in time was brought about by a change.
NEVER_SECONDS = 600.0
DEADLINE_SECONDS = 20.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[PlaneInMemory]:
    """A plane whose store is a file."""
    made = PlaneInMemory(str(tmp_path / "plane.db"))
    yield made
    made.store.close()


class Passes:
    """A reconciler that wants nothing and counts how often it is asked."""

    __name__ = "passes"

    def __init__(self) -> None:
        self.count = 0
        self._changed = asyncio.Event()

    def __call__(self, world: World, now: datetime) -> list[Chain]:
        self.count += 1
        self._changed.set()
        return []

    async def reach(self, count: int) -> None:
        while self.count < count:
            self._changed.clear()
            await self._changed.wait()


def run(
    plane: PlaneInMemory,
    story: Callable[[Passes], Awaitable[None]],
    *,
    tick_seconds: float = NEVER_SECONDS,
    rest_seconds: float = 0.0,
    reconcilers: tuple[Reconciler, ...] = RECONCILERS,
) -> None:
    """Tells a story beside the running loop, within a deadline."""

    async def told() -> None:
        passes = Passes()
        loop = asyncio.create_task(
            run_reconcilers(
                plane.store,
                plane.clock,
                tick_seconds=tick_seconds,
                rest_seconds=rest_seconds,
                reconcilers=(*reconcilers, passes),
            )
        )
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await story(passes)
            assert not loop.done(), "the loop has ended"
        finally:
            loop.cancel()
            with suppress(asyncio.CancelledError):
                await loop

    asyncio.run(told())


async def until(plane: PlaneInMemory, condition: Callable[[], bool]) -> None:
    """Returns once a write has made the condition true."""
    while not condition():
        await plane.store.wait_for_change(plane.store.version(), DEADLINE_SECONDS)


def test_a_new_task_is_scheduled_because_it_was_created(plane: PlaneInMemory) -> None:
    """The change wakes the loop; nobody waits for a tick."""
    plane.add_node("desk")

    async def story(passes: Passes) -> None:
        await passes.reach(1)
        plane.add_task("one")
        await until(plane, lambda: plane.task("one").status.assigned_node == "desk")

    run(plane, story)


def test_time_alone_brings_decisions(plane: PlaneInMemory) -> None:
    """A heartbeat grows stale without any write; the next tick notices."""
    plane.add_node("desk")

    async def story(passes: Passes) -> None:
        await until(plane, lambda: plane.node("desk").status.conditions != ())
        plane.clock.move(91)
        await until(plane, lambda: plane.node("desk").status.phase is FleetNodePhase.NOT_READY)

    run(plane, story, tick_seconds=0.01)


def test_an_idle_plane_does_not_write(plane: PlaneInMemory) -> None:
    """Pass after pass the resourceVersion stays, with a busy node, a waiting task and a draining node."""
    plane.add_node("a")
    plane.add_node("b", phase="Draining")
    for name in ("one", "two"):
        plane.add_task(name)
    plane.add_release()
    plane.settle()
    version = plane.store.version()

    async def story(passes: Passes) -> None:
        await passes.reach(20)

    run(plane, story, tick_seconds=0.001)
    assert plane.store.version() == version


def test_heartbeats_alone_make_no_pass(plane: PlaneInMemory) -> None:
    """Sixty beats of healthy nodes cost nothing but the reading; then one task makes one pass."""
    for name in "abcd":
        plane.add_node(name)
    plane.settle()

    async def story(passes: Passes) -> None:
        await passes.reach(1)
        for _ in range(15):
            plane.clock.move(1)
            for name in "abcd":
                plane.beat(name)
            await asyncio.sleep(0)
        assert passes.count == 1
        plane.add_task("one")
        await until(plane, lambda: plane.task("one").status.assigned_node == "a")
        await asyncio.sleep(0)
        # One pass for the task, and at most one that finds that its own writes need no more.
        assert passes.count <= 3

    run(plane, story)


def test_a_burst_of_writes_makes_few_passes(plane: PlaneInMemory) -> None:
    """Thirty tasks that come within one rest are looked at together."""
    plane.add_node("desk")
    plane.settle()

    async def story(passes: Passes) -> None:
        await passes.reach(1)
        for number in range(30):
            plane.add_task(f"task-{number:03}")
        await until(plane, lambda: all(task.status.phase is not None for task in plane.tasks()))
        assert passes.count <= 3

    run(plane, story, rest_seconds=0.02)


def test_an_object_that_cannot_be_read_is_in_nobodys_way(
    plane: PlaneInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named in the log and otherwise ignored."""
    plane.add_node("broken", phase="Asleep")
    plane.add_node("desk")
    plane.add_task("one")

    async def story(passes: Passes) -> None:
        await until(plane, lambda: plane.task("one").status.assigned_node == "desk")

    run(plane, story)
    assert "object_ignored" in capsys.readouterr().out


def test_a_reconciler_that_fails_does_not_stop_the_others(
    plane: PlaneInMemory, capsys: pytest.CaptureFixture[str]
) -> None:
    """A defect in one decision is logged with its trace, and everything else goes on."""

    def defective(world: World, now: datetime) -> list[Chain]:
        raise ZeroDivisionError

    plane.add_node("desk")
    plane.add_task("one")

    async def story(passes: Passes) -> None:
        await until(plane, lambda: plane.task("one").status.assigned_node == "desk")

    run(plane, story, reconcilers=(defective, *RECONCILERS))
    assert "reconciler_failed" in capsys.readouterr().out


def test_a_chain_that_comes_too_late_is_dropped_and_the_loop_goes_on(plane: PlaneInMemory) -> None:
    """A conflict costs that chain alone; what is still wanted is decided anew."""
    plane.add_node("desk")
    outdated = [Chain("outdated", (PatchStatus(key(FLEET_NODES, "desk"), {"currentTask": "x/y"}, "1"),))]

    def too_late(world: World, now: datetime) -> list[Chain]:
        return outdated

    plane.add_task("one")

    async def story(passes: Passes) -> None:
        await until(plane, lambda: plane.task("one").status.assigned_node == "desk")

    run(plane, story, reconcilers=(too_late, *RECONCILERS))
    assert plane.node("desk").status.current_task == "default/one"


def annotate(plane: PlaneInMemory, name: str, version: str) -> PatchAnnotations:
    return PatchAnnotations(key(AGENTIC_TASKS, name), {"seen": "yes"}, version)


def test_a_chain_stops_at_the_first_action_that_fails(plane: PlaneInMemory) -> None:
    """Neither a conflict nor a missing object lets the actions behind it happen."""
    plane.add_task("one")
    version = plane.task("one").metadata.resource_version
    for first in (annotate(plane, "one", "999"), annotate(plane, "missing", version)):
        assert not carry_out(Chain("test", (first, annotate(plane, "one", version))), plane.store)
    assert plane.task("one").metadata.annotations == {}


def test_a_chain_goes_on_from_its_own_writes(plane: PlaneInMemory) -> None:
    """The second action on an object is bound to what the first one made of it."""
    plane.add_task("one")
    version = plane.task("one").metadata.resource_version
    finish = PatchStatus(key(AGENTIC_TASKS, "one"), {"phase": "Failed"}, version)
    assert carry_out(Chain("test", (annotate(plane, "one", version), finish)), plane.store)
    task = plane.task("one")
    assert (task.metadata.annotations, task.is_terminal) == ({"seen": "yes"}, True)


def test_a_follower_that_was_left_behind_reads_everything_again(tmp_path: Path, plane: PlaneInMemory) -> None:
    """When the log no longer reaches back, the whole store is the news, deletions included."""
    store = SqliteStore(tmp_path / "short.db", plane.clock, SPLIT, history=10)
    body: dict[str, Any] = {
        "apiVersion": FLEET_NODES.api_version,
        "kind": FLEET_NODES.kind,
        "metadata": {"name": "n"},
        "spec": {"nodeName": "n"},
    }
    store.create(key(FLEET_NODES, "gone"), body)
    follower = Follower(store, plane.now)
    assert set(follower.world.nodes) == {"gone"}
    store.delete(key(FLEET_NODES, "gone"))
    for number in range(40):
        store.create(key(FLEET_NODES, f"node-{number}"), body)
    follower.has_news = False
    follower.catch_up()
    assert (len(follower.world.nodes), follower.has_news) == (40, True)
    assert "gone" not in follower.world.nodes
    assert follower.position == store.version()
    store.close()

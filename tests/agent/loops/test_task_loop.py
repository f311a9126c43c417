"""Taking work from the control plane, and letting go of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.task_plan import Claim
from journeyman.errors import ConflictError, ControlPlaneError, InvalidError, UnreachableError
from journeyman.loops.task_feed import TaskFeed
from journeyman.loops.task_loop import TaskLoop
from journeyman.model.agentic_task import AgenticTask
from journeyman.model.meta import format_time
from journeyman.model.resources import AGENTIC_TASKS
from journeyman.ports import Collection
from journeyman.settings import Settings
from tests.support.clock import START, FakeClock
from tests.support.fake_control_plane import FakeControlPlane

TASKS = Collection(AGENTIC_TASKS.group, AGENTIC_TASKS.version, AGENTIC_TASKS.plural, "default")


@dataclass
class RecordingRunner:
    """Runs nothing and remembers what it was asked to run."""

    begun: list[tuple[AgenticTask, Claim]] = field(default_factory=list)
    cancelled: list[Claim] = field(default_factory=list)

    def claims(self) -> list[Claim]:
        return [claim for _, claim in self.begun if claim not in self.cancelled]

    def can_start(self, task: AgenticTask) -> bool:
        return True

    async def begin(self, task: AgenticTask, claim: Claim) -> None:
        self.begun.append((task, claim))

    async def cancel(self, claim: Claim) -> None:
        self.cancelled.append(claim)


class LooksAgain:
    """A task loop whose every look is on a new list, so that a test need not run its feed."""

    def __init__(self, feed: TaskFeed, loop: TaskLoop) -> None:
        self._feed = feed
        self._loop = loop

    async def look(self) -> None:
        await self._feed.refresh()
        await self._loop.look()


@dataclass
class Bench:
    """The loop on a fake plane, with one namespace."""

    root: Path
    plane: FakeControlPlane = field(default_factory=FakeControlPlane)
    clock: FakeClock = field(default_factory=FakeClock)
    runner: RecordingRunner = field(default_factory=RecordingRunner)
    held: bool = False
    on_battery: bool = False
    task_loop: TaskLoop | None = None

    def parts(self) -> tuple[TaskFeed, TaskLoop]:
        settings = Settings(state_root=self.root)
        feed = TaskFeed(
            plane=self.plane,
            clock=self.clock,
            settings=settings,
            namespace="default",
            node_name="me",
            runs_here=lambda name: any(claim.name == name for claim in self.runner.claims()),
            changed=self.changed,
            saves_power=lambda: self.on_battery,
        )
        self.task_loop = TaskLoop(
            plane=self.plane,
            clock=self.clock,
            settings=settings,
            node_name="me",
            feeds=[feed],
            runner=self.runner,
            undelivered=list,
            held=lambda: self.held,
            saves_power=lambda: self.on_battery,
        )
        return feed, self.task_loop

    def changed(self) -> None:
        assert self.task_loop is not None
        self.task_loop.look_soon()

    def loop(self) -> LooksAgain:
        return LooksAgain(*self.parts())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[TaskFeed]:
        feed, loop = self.parts()
        tasks = [asyncio.create_task(each) for each in (feed.run(), loop.run())]
        await self.clock.settle()
        try:
            yield feed
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def requests(self, verb: str) -> int:
        return sum(called == verb for called, _ in self.plane.calls)

    async def begun(self) -> list[str]:
        """What was begun once everybody has got as far as they can without time passing."""
        await self.clock.settle()
        return [task.metadata.name for task, _ in self.runner.begun]

    async def submit(self, name: str, **status: Any) -> None:
        await self.plane.create(TASKS, {"metadata": {"name": name}, "spec": {"kind": "freeform"}})
        await self.plane.patch(TASKS.named(name), {"status": status}, subresource="status")

    async def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.plane.get(TASKS.named(name)))["status"]
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_a_scheduled_task_is_claimed_by_compare_and_set_and_begun(bench: Bench) -> None:
    """The claim says Running since now, by us, and the worker gets what the server echoed."""

    async def scenario() -> None:
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        await bench.loop().look()
        status = await bench.status("a")
        assert (status["phase"], status["claimedAt"]) == ("Running", format_time(START))
        assert status["conditions"][0]["message"] == "claimed by me"
        assert [claim.claimed_at for _, claim in bench.runner.begun] == [START]

    run(scenario())


def test_a_claim_that_somebody_else_overtook_starts_nothing(bench: Bench) -> None:
    """A 409 on the claim means that the task is no longer as we saw it; the next look decides anew."""

    async def scenario() -> None:
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        bench.plane.fail("patch_status", ConflictError("changed", status=409))
        loop = bench.loop()
        await loop.look()
        assert bench.runner.begun == []
        await loop.look()
        assert len(bench.runner.begun) == 1

    run(scenario())


def test_entering_draining_hands_back_what_is_scheduled_here(bench: Bench) -> None:
    """A handed-back task is Pending, without node and claim, so that the scheduler can place it."""

    async def scenario() -> None:
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        bench.held = True
        await bench.loop().look()
        status = await bench.status("a")
        assert status["phase"] == "Pending"
        assert "assignedNode" not in status
        assert "claimedAt" not in status

    run(scenario())


def test_a_deleted_task_is_cancelled(bench: Bench) -> None:
    """A run stops within a look of its task's deletion; nothing is written."""

    async def scenario() -> None:
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        loop = bench.loop()
        await loop.look()
        await bench.plane.delete(TASKS.named("a"))
        await loop.look()
        assert bench.runner.cancelled == [claim for _, claim in bench.runner.begun]

    run(scenario())


def test_words_of_a_newer_control_plane_hide_no_other_task(bench: Bench) -> None:
    """A task whose kind we do not know is passed over; the rest of the list is served."""

    async def scenario() -> None:
        await bench.plane.create(TASKS, {"metadata": {"name": "new"}, "spec": {"kind": "telepathy"}})
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        await bench.loop().look()
        assert [task.metadata.name for task, _ in bench.runner.begun] == ["a"]

    run(scenario())


def test_a_lost_api_is_survived_and_looked_at_again(bench: Bench) -> None:
    """An hour without the API ends nothing; the first look after it claims what waits."""

    async def scenario() -> None:
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        await bench.plane.lose(UnreachableError("no route"))
        async with bench.running():
            await bench.clock.run_for(3600)
            # Full jitter up to half a minute, so two tries a minute at least, and no more than one a second.
            assert 120 <= bench.requests("list") <= 3600
            bench.plane.down = None
            await bench.clock.run_for(31)
            assert len(bench.runner.begun) == 1

    run(scenario())


def test_an_idle_hour_is_one_list_and_no_poll(bench: Bench) -> None:
    """What the watch tells is not asked for: a look at the tasks costs no request."""

    async def scenario() -> None:
        async with bench.running():
            await bench.clock.run_for(3600)
            assert (bench.requests("list"), bench.requests("watch")) == (1, 1)

    run(scenario())


def test_a_task_is_claimed_as_soon_as_the_watch_tells_of_it(bench: Bench) -> None:
    """No time passes between the assignment and the claim, and nothing is listed for it."""

    async def scenario() -> None:
        async with bench.running():
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            assert await bench.begun() == ["a"]
            assert bench.requests("list") == 1

    run(scenario())


def test_a_stream_that_ends_goes_on_where_it_stopped(bench: Bench) -> None:
    """Nothing is listed again, and what happened in between is not missed."""

    async def scenario() -> None:
        async with bench.running():
            await bench.clock.run_for(300)
            await bench.plane.end_watches()
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            assert await bench.begun() == ["a"]
            assert (bench.requests("list"), bench.requests("watch")) == (1, 2)

    run(scenario())


def test_a_version_that_is_too_old_leads_to_a_new_list(bench: Bench) -> None:
    """410 says that changes were missed, so all is asked for again."""

    async def scenario() -> None:
        async with bench.running():
            await bench.plane.lose(UnreachableError("no route"))
            await bench.clock.settle()
            bench.plane.down = None
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            bench.plane.forget_history()
            await bench.clock.run_for(5)
            assert await bench.begun() == ["a"]
            assert bench.requests("list") == 2

    run(scenario())


def test_a_watch_that_never_works_degrades_to_lists(bench: Bench) -> None:
    """A proxy that lets no stream through costs promptness, not work, and is not asked without a pause."""

    async def scenario() -> None:
        bench.plane.fail("watch", *[ControlPlaneError("no stream here", status=501)] * 10_000)
        async with bench.running():
            await bench.clock.run_for(600)
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            await bench.clock.run_for(31)
            assert await bench.begun() == ["a"]
            assert bench.requests("list") < 150

    run(scenario())


def test_streams_that_end_at_once_are_not_opened_without_a_pause(bench: Bench) -> None:
    """A server that ends each watch at its beginning gets a handful of them a minute."""

    async def scenario() -> None:
        async with bench.running():
            for _ in range(100):
                await bench.plane.end_watches()
                await bench.clock.settle()
            assert bench.requests("watch") <= 2

    run(scenario())


def test_a_silently_dead_stream_is_found_out_by_the_next_heartbeat(bench: Bench) -> None:
    """The node is reserved for a task that the stream has not told of, so the stream is not believed."""

    async def scenario() -> None:
        async with bench.running() as feed:
            await bench.clock.run_for(60)
            bench.plane.deaf = True
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            feed.heard("")
            assert await bench.begun() == []
            feed.heard("default/a")
            assert await bench.begun() == ["a"]
            # A reservation that is known, or of another namespace, asks for nothing.
            feed.heard("default/a")
            feed.heard("elsewhere/b")
            await bench.clock.settle()
            assert bench.requests("list") == 2

    run(scenario())


def test_after_a_sleep_a_claim_that_was_lost_meanwhile_is_found_out(bench: Bench) -> None:
    """What was known is listed anew, so a lease that ran out costs no heartbeat and no second result."""

    async def scenario() -> None:
        async with bench.running() as feed:
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            assert await bench.begun() == ["a"]
            # Asleep, the host hears nothing, and its stream dies without a word.
            bench.plane.deaf = True
            theirs = {"status": {"assignedNode": "you", "claimedAt": "2026-01-01T13:00:00Z"}}
            await bench.plane.patch(TASKS.named("a"), theirs, subresource="status")
            await bench.clock.settle()
            assert bench.runner.cancelled == []
            feed.doubt()
            await bench.clock.settle()
            assert [claim.name for claim in bench.runner.cancelled] == ["a"]

    run(scenario())


def test_a_heartbeat_that_lands_ends_the_wait_for_the_next_try(bench: Bench) -> None:
    """Whoever was heard need not wait any longer to listen."""

    async def scenario() -> None:
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        await bench.plane.lose(ControlPlaneError("busy", status=503, retry_after_seconds=500))
        async with bench.running() as feed:
            await bench.clock.run_for(100)
            bench.plane.down = None
            await bench.clock.run_for(1)
            assert await bench.begun() == []
            feed.heard("")
            assert await bench.begun() == ["a"]

    run(scenario())


def test_on_battery_a_busy_namespace_wakes_us_four_times_a_minute(bench: Bench) -> None:
    """The first change is acted on at once; what follows is read together, every fifteen seconds."""

    async def scenario() -> None:
        bench.on_battery = True
        async with bench.running():
            await bench.clock.run_for(60)
            await bench.submit("first", phase="Scheduled", assignedNode="me")
            assert await bench.begun() == ["first"]
            await bench.clock.run_for(2)
            await bench.plane.create(TASKS, {"metadata": {"name": "second"}, "spec": {"kind": "freeform"}})
            await bench.clock.settle()
            await bench.plane.delete(TASKS.named("first"))
            await bench.clock.settle()
            assert bench.runner.cancelled == []
            await bench.clock.run_for(15)
            assert [claim.name for claim in bench.runner.cancelled] == ["first"]

    run(scenario())


def test_a_loop_that_stands_still_is_known_after_a_pause_and_a_step(bench: Bench) -> None:
    """The long pause of a battery counts on a battery alone, so a dead loop is soon told from a slow one."""

    async def scenario() -> None:
        settings = Settings(state_root=bench.root)
        step = 4 * settings.request_timeout_seconds + settings.worker_stop_grace_seconds
        _, never_run = bench.parts()
        await bench.clock.run_for(settings.task_poll_seconds + step - 1)
        assert never_run.is_ticking()
        await bench.clock.run_for(2)
        assert not never_run.is_ticking()

        bench.on_battery = True
        async with bench.running():
            assert bench.task_loop is not None
            for _ in range(40):
                await bench.clock.run_for(1)
                assert bench.task_loop.is_ticking()

    run(scenario())


def test_the_tasks_of_other_nodes_are_not_kept(bench: Bench) -> None:
    """An edge node does not hold the state of a whole fleet, nor what has long ended here."""

    async def scenario() -> None:
        await bench.submit("theirs", phase="Running", assignedNode="you")
        await bench.submit("old", phase="Succeeded", assignedNode="me")
        async with bench.running() as feed:
            await bench.submit("other", phase="Scheduled", assignedNode="you")
            await bench.clock.settle()
            assert feed.tasks() == []

    run(scenario())


def test_a_task_that_is_given_to_another_node_is_cancelled_at_once(bench: Bench) -> None:
    """The watch tells of the loss, and the run ends without a write."""

    async def scenario() -> None:
        async with bench.running():
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            assert await bench.begun() == ["a"]
            theirs = {"status": {"assignedNode": "you", "claimedAt": "2026-01-01T13:00:00Z"}}
            await bench.plane.patch(TASKS.named("a"), theirs, subresource="status")
            before = await bench.status("a")
            await bench.clock.settle()
            assert [claim.name for claim in bench.runner.cancelled] == ["a"]
            assert await bench.status("a") == before

    run(scenario())


def test_a_claim_whose_reply_was_lost_is_handed_back_and_runs_once(bench: Bench) -> None:
    """We do not know whether it landed; nothing runs until that is known."""

    async def scenario() -> None:
        async with bench.running():
            await bench.submit("a", phase="Scheduled", assignedNode="me")
            # It landed: what we see next is a claim of ours without a run.
            landed = {"status": {"phase": "Running", "claimedAt": "2026-01-01T12:00:00Z"}}
            await bench.plane.patch(TASKS.named("a"), landed, subresource="status")
            await bench.clock.run_for(10)
            assert await bench.begun() == []
            assert (await bench.status("a"))["phase"] == "Pending"

    run(scenario())


def test_one_task_that_cannot_be_written_keeps_us_from_no_other(bench: Bench) -> None:
    """A refusal concerns one task alone; the others are claimed in the same look."""

    async def scenario() -> None:
        await bench.submit("lost", phase="Running", assignedNode="me", claimedAt="2026-01-01T11:00:00Z")
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        bench.plane.fail("patch_status", InvalidError("no", status=422))
        async with bench.running():
            assert await bench.begun() == ["a"]

    run(scenario())


def test_a_namespace_that_is_not_known_yet_costs_nobody_their_work(tmp_path: Path) -> None:
    """What runs for a namespace of which there is no list is not taken for deleted."""

    async def scenario() -> None:
        bench = Bench(tmp_path)
        feed, loop = bench.parts()
        await bench.submit("a", phase="Scheduled", assignedNode="me")
        task = AgenticTask.from_wire(await bench.plane.get(TASKS.named("a")))
        elsewhere = Claim("elsewhere", "b", "uid", START)
        bench.runner.begun.append((task, elsewhere))
        await feed.refresh()
        await loop.look()
        assert bench.runner.cancelled == []

    run(scenario())

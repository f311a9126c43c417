"""Servers that are there only while somebody asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journeyman.core.delivery import Delivery
from journeyman.core.liveness import Traffic
from journeyman.core.model_admission import Refusal
from journeyman.core.proxy.routes import RouteState
from journeyman.core.server_config import ServerConfig
from journeyman.core.task_plan import Claim
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.loops.task_runner import TaskRunner
from journeyman.model.agentic_task import AgenticTask
from journeyman.settings import Inference, Settings
from tests.agent.loops.test_model_server_loop import PYTHON, House, only, scenario
from tests.support.clock import START
from tests.support.fake_control_plane import FakeControlPlane
from tests.support.fake_models import model_file

IDLE_SECONDS = 60
# At most a quarter late, and the first look has nothing to compare with.
GONE_SECONDS = 1.5 * IDLE_SECONDS
NO_PLACE = Refusal("needs 2 GiB; 1 GiB are free", is_final=False)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def tables(*names: str, **values: Any) -> dict[str, Any]:
    wanted = {"start": "on_demand", **values}
    return {"models": (), "inference": tuple(Inference(model=name, **wanted) for name in names)}


async def wake(house: House, model: str = "smol") -> None:
    """The proxy holds a request for it; the server is there a moment later."""
    house.held.put_nowait(model)
    await house.clock.run_for(1)
    house.listens()
    await house.clock.run_for(1)


def phases(loop: ModelServerLoop) -> dict[str, str]:
    return {each["name"]: each["phase"] for each in loop.snapshot()}


def test_a_model_on_demand_starts_with_its_first_request(house: House) -> None:
    """Until then there is no process; to others it is a model that can be asked, and no failure."""

    async def play() -> None:
        async with house.serve(**tables("smol")) as loop:
            await house.clock.run_for(3600)
            assert house.workers.started == []
            assert (only(loop)["phase"], only(loop)["failure"]) == ("asleep", "")
            assert (loop.ready_models(), loop.context_tokens()) == (["smol"], 2048)
            (route,) = loop.routes()
            assert (route.state, route.asleep) == (RouteState.STARTING, True)
            house.held.put_nowait("smol")
            await house.clock.run_for(0.5)
            assert len(house.workers.started) == 1
            # Already promised, it stays so while it starts.
            assert loop.ready_models() == ["smol"]
            assert not loop.routes()[0].asleep
            house.listens()
            await house.clock.run_for(1)
            assert (only(loop)["phase"], only(loop)["restarts"]) == ("ready", 0)

    scenario(play)


def test_an_idle_server_is_ended_and_comes_back(house: House) -> None:
    """Its idle time begins when it is ready, whatever it took to load, and a proof is no use of it."""

    async def play() -> None:
        table = tables("smol", start="always", idle_unload_seconds=IDLE_SECONDS)
        async with house.serve(**table, model_liveness_seconds=7, model_start_timeout_seconds=900) as loop:
            await house.clock.run_for(2 * GONE_SECONDS)
            house.listens()
            await house.clock.run_for(IDLE_SECONDS - 2)
            assert phases(loop) == {"smol": "ready"}
            await house.clock.run_for(GONE_SECONDS - IDLE_SECONDS + 3)
            assert phases(loop) == {"smol": "asleep"}
            assert house.workers.stopped == house.workers.started
            assert house.workers.known() == []
            await wake(house)
            assert phases(loop) == {"smol": "ready"}

    scenario(play)


def test_a_stream_keeps_its_server(house: House) -> None:
    """Neither a stream, nor a proxy that cannot be asked, nor a task of ours lets it be ended."""

    async def play() -> None:
        async with house.serve(**tables("smol", idle_unload_seconds=IDLE_SECONDS)) as loop:
            await wake(house)
            house.traffic = {"smol": Traffic(1, 0)}
            await house.clock.run_for(10 * IDLE_SECONDS)
            house.traffic = None
            await house.clock.run_for(10 * IDLE_SECONDS)
            house.traffic, house.in_use = {}, True
            await house.clock.run_for(10 * IDLE_SECONDS)
            assert (phases(loop), house.workers.stopped) == ({"smol": "ready"}, [])
            house.in_use = False
            await house.clock.run_for(GONE_SECONDS)
            assert phases(loop) == {"smol": "asleep"}

    scenario(play)


def test_without_a_proxy_tasks_alone_are_use(house: House) -> None:
    """Where there is none, nobody who cannot be asked keeps a server awake for ever."""

    async def play() -> None:
        house.traffic = None
        table = tables("smol", start="always", idle_unload_seconds=IDLE_SECONDS)
        async with house.serve(**table, proxy=False) as loop:
            house.listens()
            house.in_use = True
            await house.clock.run_for(10 * IDLE_SECONDS)
            assert phases(loop) == {"smol": "ready"}
            house.in_use = False
            await house.clock.run_for(GONE_SECONDS)
            assert phases(loop) == {"smol": "asleep"}
            # Nobody hears of requests then, and a task wakes it.
            assert loop.wake("smol")
            await house.clock.run_for(1)
            assert phases(loop) == {"smol": "starting"}

    scenario(play)


def test_who_is_faster_than_the_end_keeps_the_server(house: House) -> None:
    """A request that reaches the server while the proxy is told of its end is not cut off."""

    async def play() -> None:
        async with house.serve(**tables("smol", idle_unload_seconds=IDLE_SECONDS)) as loop:
            await wake(house)
            late: list[bool] = []

            def when_told() -> None:
                if loop.routes()[0].state is RouteState.STARTING and not late:
                    late.append(True)
                    house.traffic = {"smol": Traffic(1, 0)}

            house.told = when_told
            await house.clock.run_for(GONE_SECONDS)
            assert late
            assert (house.workers.stopped, phases(loop)) == ([], {"smol": "ready"})
            assert loop.routes()[0].state is RouteState.READY

    scenario(play)


def test_an_agent_adopts_a_server_on_demand(house: House) -> None:
    """A restart of the agent is no reason to let it sleep: its clients are in the middle of something."""

    async def play() -> None:
        async with house.serve(**tables("smol")):
            await wake(house)
        async with house.serve(**tables("smol")) as loop:
            await house.clock.run_for(1)
            assert (phases(loop), len(house.workers.started)) == ({"smol": "ready"}, 1)

    scenario(play)


def test_a_server_on_demand_that_ends_is_not_started_for_nobody(house: House) -> None:
    """It says what went wrong, and the next request tries again."""

    async def play() -> None:
        async with house.serve(**tables("smol")) as loop:
            await wake(house)
            house.workers.finish(house.last(), code=1)
            await house.clock.run_for(600)
            assert phases(loop) == {"smol": "asleep"}
            assert "last time" in only(loop)["reason"]
            await wake(house)
            assert phases(loop) == {"smol": "ready"}

    scenario(play)


class Narrow(House):
    """A host with memory for one server."""

    async def refuse(self, config: ServerConfig) -> Refusal | None:
        return NO_PLACE if any(map(self.workers.running, self.workers.known())) else None


def narrow(tmp_path: Path) -> Narrow:
    house = Narrow(tmp_path)
    house.store.stored["other"] = model_file("other")
    return house


def test_an_idle_server_gives_way_to_one_that_is_asked_for(tmp_path: Path) -> None:
    """Where memory is for one, the one that nobody asks is ended first, without any idle time."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables("smol", "other")) as loop:
            await wake(house, "smol")
            await wake(house, "other")
            assert phases(loop) == {"smol": "asleep", "other": "ready"}
            await wake(house, "smol")
            assert phases(loop) == {"smol": "ready", "other": "asleep"}

    scenario(play)


def test_a_stream_is_waited_for_by_who_wants_its_place(tmp_path: Path) -> None:
    """The other one starts when the stream has ended, and not at its cost."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables("smol", "other")) as loop:
            await wake(house, "smol")
            house.traffic = {"smol": Traffic(1, 0)}
            house.held.put_nowait("other")
            await house.clock.run_for(30)
            assert phases(loop) == {"smol": "ready", "other": "starting"}
            house.traffic = {"smol": Traffic(0, 1, asked=1)}
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            assert phases(loop) == {"smol": "asleep", "other": "ready"}

    scenario(play)


def test_two_that_are_asked_at_once_have_their_turns(tmp_path: Path) -> None:
    """The second one waits for a load, too, and that is no failure that would make it wait the longer."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables("smol", "other")) as loop:
            house.traffic = {"smol": Traffic(0, 0, waiting=1), "other": Traffic(0, 0, waiting=1)}
            house.held.put_nowait("smol")
            await house.clock.run_for(1)
            house.held.put_nowait("other")
            await house.clock.run_for(30)
            assert phases(loop) == {"smol": "starting", "other": "starting"}
            house.listens()
            await house.clock.run_for(30)
            assert phases(loop) == {"smol": "ready", "other": "starting"}
            house.traffic["smol"] = Traffic(0, 1, asked=1)
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            assert phases(loop) == {"smol": "asleep", "other": "ready"}
            assert [each["failure"] for each in loop.snapshot()] == ["", ""]

    scenario(play)


def test_a_server_that_is_always_there_gives_way_to_nobody(tmp_path: Path) -> None:
    """What is to be there always was not made for turns: the other one is refused with the numbers."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**{**tables("other"), "models": ("smol",)}) as loop:
            house.listens()
            await house.clock.run_for(1)
            await wake(house, "other")
            await house.clock.run_for(5)
            assert phases(loop) == {"smol": "ready", "other": "asleep"}
            assert NO_PLACE.message in loop.snapshot()[1]["reason"]

    scenario(play)


class NarrowForTwo(Narrow):
    """A host with memory for two servers."""

    async def refuse(self, config: ServerConfig) -> Refusal | None:
        return NO_PLACE if sum(map(self.workers.running, self.workers.known())) > 1 else None


@pytest.mark.parametrize(
    ("first", "gone"),
    [
        ({}, "first"),
        ({"priority": "high"}, "second"),
        ({"eviction_protection": True}, "second"),
        ({"priority": "batch"}, "first"),
    ],
)
def test_who_gives_way_is_the_lowest_and_then_the_least_lately_used(
    tmp_path: Path, first: dict[str, Any], gone: str
) -> None:
    """Of two that are idle the first to be used goes, unless it is of a higher priority or protected."""
    house = NarrowForTwo(tmp_path)
    names = ("first", "second", "third")
    for name in names:
        house.store.stored[name] = model_file(name)
    values = {"first": first}

    async def play() -> None:
        served = tuple(Inference(model=name, start="on_demand", **values.get(name, {})) for name in names)
        async with house.serve(models=(), inference=served) as loop:
            for name in names:
                await wake(house, name)
            assert {name for name, phase in phases(loop).items() if phase == "asleep"} == {gone}

    scenario(play)


def test_a_protected_model_gives_way_to_nobody(tmp_path: Path) -> None:
    """Though it is on demand and idle, the other one is refused with the numbers."""
    house = narrow(tmp_path)

    async def play() -> None:
        served = (
            Inference(model="smol", start="on_demand", eviction_protection=True),
            Inference(model="other", start="on_demand", priority="critical"),
        )
        async with house.serve(models=(), inference=served) as loop:
            await wake(house, "smol")
            await wake(house, "other")
            assert phases(loop) == {"smol": "ready", "other": "asleep"}
            assert NO_PLACE.message in loop.snapshot()[1]["reason"]

    scenario(play)


def runner_of(house: House, loop: ModelServerLoop, delivered: list[Delivery]) -> TaskRunner:
    return TaskRunner(
        plane=FakeControlPlane(),
        workers=house.workers,
        models=loop,
        clock=house.clock,
        settings=Settings(**{**house.values, **tables("smol")}),
        interpreter=PYTHON,
        deliver=delivered.append,
        changed=lambda: None,
    )


TASK = AgenticTask.from_wire(
    {
        "metadata": {"name": "t", "namespace": "default", "uid": "u"},
        "spec": {"kind": "freeform", "payload": {"prompt": "hi"}},
    }
)
CLAIM = Claim("default", "t", "u", START)


def test_a_task_wakes_its_model_and_runs_once_that_answers(house: House) -> None:
    """It can be started here, and is ours while its model loads."""
    delivered: list[Delivery] = []

    async def play() -> None:
        async with house.serve(**tables("smol")) as loop:
            runner = runner_of(house, loop, delivered)
            assert runner.can_start(TASK)
            await runner.begin(TASK, CLAIM)
            await house.clock.run_for(1)
            assert (phases(loop), runner.claims(), runner.runs()) == ({"smol": "starting"}, [CLAIM], [])
            house.listens()
            await house.clock.run_for(1)
            (run,) = runner.runs()
            assert (run.claim, runner.claims()) == (CLAIM, [CLAIM])
            await runner.let_go()

    scenario(play)
    assert delivered == []


def test_a_task_whose_model_does_not_wake_is_told_so(house: House) -> None:
    """It is refused with a reason, and its place is free again."""
    delivered: list[Delivery] = []

    async def play() -> None:
        async with house.serve(**tables("smol")) as loop:
            runner = runner_of(house, loop, delivered)
            house.refusal = NO_PLACE
            await runner.begin(TASK, CLAIM)
            await house.clock.run_for(1)
            assert runner.claims() == []

    scenario(play)
    (ending,) = delivered
    assert ending.claim == CLAIM


def test_a_task_that_is_cancelled_while_its_model_loads_is_not_run(house: House) -> None:
    """Whoever takes a task back is not surprised by it later."""

    async def play() -> None:
        async with house.serve(**tables("smol")) as loop:
            runner = runner_of(house, loop, [])
            await runner.begin(TASK, CLAIM)
            await house.clock.run_for(1)
            await runner.cancel(CLAIM)
            house.listens()
            await house.clock.run_for(5)
            assert (runner.claims(), len(house.workers.started)) == ([], 1)

    scenario(play)

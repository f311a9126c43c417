"""Models on demand that take turns in the place of one, although their clients never pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from journeyman.core.liveness import Traffic
from journeyman.core.proxy.routes import RouteState
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.settings import Inference
from tests.agent.loops.test_model_server_loop import scenario
from tests.agent.loops.test_model_sleep import NO_PLACE, Narrow, narrow, phases, wake
from tests.support.fake_models import model_file

TURN_SECONDS, HOLD_SECONDS = 30, 120
BUSY, HELD = Traffic(1, 0), Traffic(0, 0, waiting=1)


def tables(**priorities: str) -> dict[str, Any]:
    """Models on demand, with their priorities."""
    served = [Inference(model=name, start="on_demand", priority=value) for name, value in priorities.items()]
    return {"models": (), "inference": tuple(served), "model_turn_seconds": TURN_SECONDS}


def state_of(loop: ModelServerLoop, model: str) -> RouteState:
    return next(route.state for route in loop.routes() if route.model == model)


async def until_waiting(house: Narrow, *models: str) -> None:
    """`smol` streams without end, and the proxy holds requests for the others."""
    await wake(house, "smol")
    house.traffic = {"smol": BUSY, **dict.fromkeys(models, HELD)}
    for model in models:
        house.held.put_nowait(model)
        await house.clock.run_for(1)


def test_a_client_that_never_pauses_does_not_keep_others_out(tmp_path: Path) -> None:
    """After its turn the model gets nothing new, finishes what it has, and waits for the next turn itself."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables(smol="normal", other="normal")) as loop:
            await until_waiting(house, "other")
            await house.clock.run_for(TURN_SECONDS - 2)
            assert state_of(loop, "smol") is RouteState.READY
            await house.clock.run_for(2)
            # Its stream goes on, while what comes is held by the proxy.
            assert (phases(loop)["smol"], state_of(loop, "smol")) == ("ready", RouteState.STARTING)
            assert house.workers.stopped == []
            house.traffic = {"smol": Traffic(1, 5, waiting=3)}
            await house.clock.run_for(20)
            assert house.workers.stopped == []
            house.traffic = {"smol": Traffic(0, 6, waiting=3)}
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            house.held.put_nowait("smol")
            house.traffic = {"smol": Traffic(0, 6, waiting=3), "other": BUSY}
            await house.clock.run_for(1)
            assert phases(loop) == {"smol": "starting", "other": "ready"}
            # The other one has its turn, too, however long this one has waited by then.
            await house.clock.run_for(TURN_SECONDS - 3)
            assert state_of(loop, "other") is RouteState.READY
            await house.clock.run_for(3)
            house.traffic = {"smol": Traffic(0, 6, waiting=3)}
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            assert phases(loop) == {"smol": "ready", "other": "asleep"}

    scenario(play)


def test_nobody_is_made_to_finish_for_a_client_that_has_gone(tmp_path: Path) -> None:
    """What it asked for waits for a pause; a task that waits counts though the proxy does not see it."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables(smol="normal", other="normal")) as loop:
            await until_waiting(house, "other")
            house.traffic = {"smol": BUSY}
            await house.clock.run_for(2 * TURN_SECONDS)
            assert state_of(loop, "smol") is RouteState.READY
            assert loop.wake("other")
            await house.clock.run_for(1)
            assert state_of(loop, "smol") is RouteState.STARTING

    scenario(play)


def test_a_lower_priority_does_not_hold_up_a_higher_one(tmp_path: Path) -> None:
    """It waits for a pause, and is told in the end that there was none."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables(smol="normal", other="low")) as loop:
            await until_waiting(house, "other")
            for _ in range(HOLD_SECONDS - 2):
                await house.clock.run_for(1)
                assert state_of(loop, "smol") is RouteState.READY
            await house.clock.run_for(3)
            assert phases(loop) == {"smol": "ready", "other": "asleep"}
            assert NO_PLACE.message in loop.snapshot()[1]["reason"]

    scenario(play)


def test_what_does_not_finish_in_time_goes_on(tmp_path: Path) -> None:
    """No stream is cut for a swap: who waited is refused, and the model gets its requests again."""
    house = narrow(tmp_path)

    async def play() -> None:
        async with house.serve(**tables(smol="normal", other="critical")) as loop:
            await until_waiting(house, "other")
            await house.clock.run_for(HOLD_SECONDS - 5)
            assert state_of(loop, "smol") is RouteState.STARTING
            await house.clock.run_for(6)
            assert (phases(loop), house.workers.stopped) == ({"smol": "ready", "other": "asleep"}, [])
            assert state_of(loop, "smol") is RouteState.READY

    scenario(play)


@pytest.mark.parametrize(
    ("priorities", "first"),
    [
        ({"second": "normal", "third": "normal"}, "second"),
        ({"second": "normal", "third": "high"}, "third"),
        ({"second": "low", "third": "normal"}, "third"),
    ],
)
def test_of_several_that_wait_the_highest_and_then_the_first_is_served(
    tmp_path: Path, priorities: dict[str, str], first: str
) -> None:
    """One that waits in vain for a model above it does not stand in the way of others, either."""
    house = narrow(tmp_path)
    for name in priorities:
        house.store.stored[name] = model_file(name)

    async def play() -> None:
        async with house.serve(**tables(smol="normal", **priorities)) as loop:
            await until_waiting(house, *priorities)
            await house.clock.run_for(TURN_SECONDS + 1)
            house.traffic = {first: BUSY}
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            assert phases(loop)[first] == "ready"
            assert phases(loop)["smol"] == "asleep"

    scenario(play)


def test_a_model_that_is_not_wanted_any_more_is_not_waited_for(tmp_path: Path) -> None:
    """Whoever waits for its place gets it when its worker has gone."""
    house = narrow(tmp_path)

    async def play() -> None:
        values = tables(other="normal")
        async with house.serve(**values) as loop:
            loop.want([Inference(model="smol", start="on_demand", context_tokens=2048, slots=1, threads=0)])
            await house.clock.settle()
            await until_waiting(house, "other")
            await house.clock.run_for(TURN_SECONDS + 1)
            assert state_of(loop, "smol") is RouteState.STARTING
            loop.want([])
            await house.clock.run_for(HOLD_SECONDS)
            house.held.put_nowait("other")
            await house.clock.run_for(1)
            house.listens()
            await house.clock.run_for(1)
            assert phases(loop) == {"other": "ready"}

    scenario(play)

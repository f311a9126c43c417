"""Models that come and go while the agent runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.model_admission import Refusal
from journeyman.loops.model_server_loop import ModelServerLoop
from journeyman.model.model_file import ModelFile
from journeyman.settings import Inference
from tests.agent.loops.test_model_server_loop import House, scenario
from tests.support.fake_models import FakeModelStore, model_file


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A host with three models, of which its settings name one."""
    house = House(tmp_path)
    for name in ("other", "third"):
        house.store.stored[name] = model_file(name)
    return house


def asked(model: str, **options: Any) -> Inference:
    """A model that the fleet asks for."""
    given: dict[str, Any] = {"name": model, "model": model, "context_tokens": 1024, "slots": 1, "threads": 0}
    return Inference(**{**given, **options})


class EndlessStore(FakeModelStore):
    """A store whose models never come to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.ended = threading.Event(), threading.Event()

    def obtain(self, wanted: str, progress: Callable[[str], None], sha256: str = "") -> ModelFile:
        try:
            while True:
                progress("1 %")
                self.began.set()
        finally:
            self.ended.set()


async def all_listen(house: House) -> None:
    for number, record in enumerate(house.workers.known()):
        told = json.dumps({"base_url": f"http://127.0.0.1:{4000 + number}/v1"}).encode()
        house.workers.files_of(record.worker_id).setdefault("endpoint.json", told)
    await house.clock.run_for(1)


def phases(loop: ModelServerLoop) -> dict[str, str]:
    return {shown["name"]: shown["phase"] for shown in loop.snapshot()}


def models_of(house: House) -> list[str]:
    return [record.labels["model"] for record in house.workers.known()]


def test_a_model_that_is_asked_for_later_is_served_beside_the_others(house: House) -> None:
    """Its server comes up, its route is there, and those of the settings are not touched."""

    async def play() -> None:
        async with house.serve() as loop:
            await all_listen(house)
            before = loop.endpoint_for("smol")
            changes = house.changes
            loop.want([asked("other")])
            assert house.changes > changes
            await house.clock.settle()
            await all_listen(house)
            assert loop.ready_models() == ["smol", "other"]
            assert [route.model for route in loop.routes()] == ["smol", "other"]
            assert loop.endpoint_for("smol") == before
            assert len(house.workers.started) == 2
            loop.want([asked("other")])
            await house.clock.run_for(1)
            assert len(house.workers.started) == 2

    scenario(play)


def test_a_model_that_nobody_asks_for_any_more_gets_nothing_new_and_ends(house: House) -> None:
    """The route goes at once, and the process is asked to finish; the others keep theirs."""

    async def play() -> None:
        async with house.serve() as loop:
            loop.want([asked("other"), asked("third")])
            await house.clock.settle()
            await all_listen(house)
            loop.want([asked("third")])
            assert [route.model for route in loop.routes()] == ["smol", "third"]
            assert loop.endpoint_for("other") is None
            await house.clock.settle()
            assert models_of(house) == ["smol", "third"]
            assert house.workers.stopped == [house.workers.started[1]]
            assert phases(loop) == {"smol": "ready", "third": "ready"}

    scenario(play)


def test_a_model_that_is_asked_for_in_another_way_is_loaded_after_the_old_one_has_gone(house: House) -> None:
    """Two servers for one name are never in memory together."""

    async def play() -> None:
        async with house.serve() as loop:
            loop.want([asked("other")])
            await house.clock.settle()
            await all_listen(house)
            old = house.last()
            loop.want([asked("other", context_tokens=2048)])
            await house.clock.settle()
            assert house.workers.stopped == [old]
            assert models_of(house) == ["smol", "other"]
            assert '"context_tokens": 2048' in house.workers.spec_of(house.last()).labels["config"]

    scenario(play)


def test_the_fetch_of_a_model_that_is_dropped_ends(house: House) -> None:
    """Nobody waits for the rest of it, and what has come stays for the next time."""
    house.store = endless = EndlessStore()

    async def play() -> None:
        async with house.serve(models=()) as loop:
            loop.want([asked("other")])
            await asyncio.to_thread(endless.began.wait, 10)
            assert not endless.ended.is_set()
            loop.want([])
            await house.clock.settle()
            assert await asyncio.to_thread(endless.ended.wait, 10)
            assert loop.snapshot() == []

    scenario(play)


def test_what_changes_nothing_of_the_process_costs_no_reload(house: House) -> None:
    """Another idle time is the same server, and its clients are served on."""

    async def play() -> None:
        async with house.serve() as loop:
            loop.want([asked("other")])
            await house.clock.settle()
            await all_listen(house)
            loop.want([asked("other", idle_unload_seconds=3600)])
            assert loop.routes()[1].base_url
            await house.clock.run_for(1)
            assert (len(house.workers.started), house.workers.stopped) == (2, [])
            assert phases(loop)["other"] == "ready"

    scenario(play)


def test_the_next_agent_adopts_what_it_is_told_before(house: House) -> None:
    """A server that was asked for is no stray of an agent that knows what was asked for last."""

    async def play() -> None:
        async with house.serve() as loop:
            loop.want([asked("other")])
            await house.clock.settle()
            await all_listen(house)
        loop = house.loop()
        loop.want([asked("other")])
        loop.adopt()
        running = asyncio.create_task(loop.run())
        await house.clock.run_for(1)
        assert loop.ready_models() == ["smol", "other"]
        assert (len(house.workers.started), house.workers.stopped) == (2, [])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    scenario(play)


def test_memory_that_a_dropped_model_leaves_goes_to_who_waits_for_it(house: House) -> None:
    """One that was refused for want of memory does not wait for its time when another one has gone."""

    async def play() -> None:
        async with house.serve() as loop:
            loop.want([asked("other")])
            await house.clock.settle()
            await all_listen(house)
            house.refusal = Refusal("needs 4 GiB; 1 GiB are free", is_final=False)
            loop.want([asked("other"), asked("third")])
            await house.clock.run_for(100)
            assert phases(loop)["third"] == "backoff"
            house.refusal = None
            loop.want([asked("third")])
            await house.clock.settle()
            assert models_of(house) == ["smol", "third"]

    scenario(play)


def test_a_model_that_goes_while_it_shall_give_way_holds_up_nobody(house: House) -> None:
    """Who waits for the memory of an idle server has it when that one is dropped altogether."""

    async def play() -> None:
        async with house.serve(models=()) as loop:
            sleepy = [asked(name, start="on_demand") for name in ("other", "third")]
            loop.want(sleepy)
            await house.clock.settle()
            loop.wake("other")
            await house.clock.settle()
            await all_listen(house)
            assert phases(loop) == {"other": "ready", "third": "asleep"}
            house.refusal = Refusal("needs 4 GiB; 1 GiB are free", is_final=False)
            loop.wake("third")
            # Both in one turn: it is asked to give way, and dropped before it does.
            await asyncio.sleep(0)
            loop.want(sleepy[1:])
            house.refusal = None
            await house.clock.run_for(5)
            assert phases(loop) == {"third": "asleep"}
            # The proxy asks again for as long as it holds a request.
            loop.wake("third")
            await house.clock.settle()
            assert models_of(house) == ["third"]

    scenario(play)

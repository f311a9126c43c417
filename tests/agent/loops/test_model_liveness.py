"""A server that was ready and hangs, and one that is not ours: noticed by a token, or by its work."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman.core.liveness import Traffic
from journeyman.settings import Inference
from tests.agent.loops.test_model_server_loop import House, only, scenario

EXTERNAL = Inference(
    name="theirs", runtime="external", url="http://127.0.0.1:11434/v1", upstream_model="q:7b", slots=2
)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_server_that_hangs_after_it_was_ready_is_replaced(house: House) -> None:
    """Two questions in a row without a token end it, and another one takes its place."""

    async def play() -> None:
        async with house.serve(model_liveness_seconds=60) as loop:
            house.listens()
            await house.clock.run_for(1)
            house.probe.silent = True
            await house.clock.run_for(58)
            assert only(loop)["phase"] == "ready"
            asked = len(house.probe.asked)
            # Not as far as the next try, which comes a second after the end, more or less.
            await house.clock.run_for(1.5)
            assert len(house.probe.asked) == asked + 2
            assert house.workers.stopped == house.workers.started[:1]
            assert only(loop)["phase"] == "backoff"
            assert only(loop)["failure"] == "Hung"
            assert "does not generate any more" in only(loop)["reason"]
            assert loop.endpoint_for("smol") is None
            house.probe.silent = False
            await house.clock.run_for(2)
            house.listens(5000)
            await house.clock.run_for(1)
            assert loop.ready_models() == ["smol"]

    scenario(play)


def test_one_lost_question_ends_nothing(house: House) -> None:
    """A question may be lost for reasons that are not the server's."""

    async def play() -> None:
        async with house.serve(model_liveness_seconds=60) as loop:
            house.listens()
            await house.clock.run_for(1)
            house.probe.failures = 1
            await house.clock.run_for(60)
            assert house.probe.failures == 0
            assert loop.ready_models() == ["smol"]
            assert house.workers.stopped == []

    scenario(play)


def test_a_server_that_works_is_not_asked(house: House) -> None:
    """Requests of clients that succeed, and a slot that is busy, spare it the question."""

    async def play() -> None:
        async with house.serve(model_liveness_seconds=60):
            house.listens()
            await house.clock.run_for(1)
            asked = len(house.probe.asked)
            for done in range(1, 9):
                house.traffic = {"smol": Traffic(0, done)}
                await house.clock.run_for(60)
            house.traffic = {"smol": Traffic(1, 8)}
            await house.clock.run_for(300)
            # What was done before the first look is none of its business, so that one asked.
            assert len(house.probe.asked) == asked + 1
            await house.clock.run_for(600)
            assert len(house.probe.asked) > asked + 1

    scenario(play)


def test_a_sleep_is_followed_by_a_question(house: House) -> None:
    """A server may have died inside while its host slept, so it is not believed until the next interval."""

    async def play() -> None:
        async with house.serve(model_liveness_seconds=3600) as loop:
            house.listens()
            await house.clock.run_for(1)
            house.probe.silent = True
            loop.doubt()
            await house.clock.settle()
            assert only(loop)["failure"] == "Hung"

    scenario(play)


def test_a_server_that_is_not_ours_is_watched_and_never_started(house: House) -> None:
    """It is ready while it generates, and no worker has to do with it."""

    async def play() -> None:
        house.probe.silent = True
        async with house.serve(models=(), inference=(EXTERNAL,), model_liveness_seconds=60) as loop:
            assert only(loop)["phase"] == "backoff"
            assert only(loop)["failure"] == "NotReached"
            house.probe.silent = False
            await house.clock.run_for(2)
            assert loop.ready_models() == ["theirs"]
            (route,) = loop.routes()
            assert (route.base_url, route.upstream_model, route.slots, route.key_file) == (
                "http://127.0.0.1:11434/v1",
                "q:7b",
                2,
                "",
            )
            assert house.probe.asked[-1][1] == "q:7b"
            house.probe.silent = True
            await house.clock.run_for(61)
            assert loop.ready_models() == []
            house.probe.silent = False
            await house.clock.run_for(10)
            assert loop.ready_models() == ["theirs"]
            await loop.stop_all()
        assert house.workers.started == []

    scenario(play)


def test_the_key_of_a_server_that_is_not_ours_is_read_from_its_file(house: House, tmp_path: Path) -> None:
    """A key that cannot be read is told, and one that is there is shown to the server and to the proxy."""
    key_file = tmp_path / "their.key"
    wanted = EXTERNAL.model_copy(update={"key_file": key_file})

    async def play() -> None:
        async with house.serve(models=(), inference=(wanted,)) as loop:
            assert f"the key in {key_file} cannot be read" in only(loop)["reason"]
            key_file.write_text("k-theirs\n")
            await house.clock.run_for(2)
            assert house.probe.asked[-1][0].api_key == b"k-theirs"
            assert loop.routes()[0].key_file == str(key_file)

    scenario(play)


def test_the_last_words_of_a_server_are_shown_without_its_key(house: House) -> None:
    """People see the end of its log in the status, and a program that prints its key gives nothing away."""

    async def play() -> None:
        async with house.serve() as loop:
            key = house.workers.files_of(house.last())["api-key"].decode()
            lines = [f"line {number}" for number in range(20)]
            house.workers.words[house.last()] = "\n".join([*lines, f"key={key}", ""])
            house.workers.finish(house.last(), code=1)
            await house.clock.settle()
            assert only(loop)["lastWords"][-2:] == ["line 19", "key=***"]
            assert len(only(loop)["lastWords"]) == 10

    scenario(play)

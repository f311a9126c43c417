"""Keeping the proxy, with time and processes under the test's control."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.key_file import established_key, keys_of
from journeyman.core.proxy.routes import Route, RouteState, routes_to_json
from journeyman.core.worker_specs import Interpreter
from journeyman.errors import HostError, WorkerError
from journeyman.loops.proxy_loop import ProxyLoop
from journeyman.settings import Settings
from journeyman_updater.contract import StateRoot
from tests.support.clock import FakeClock
from tests.support.fake_workers import FakeWorkers

STARTING = Route("tiny", RouteState.STARTING)
READY = Route("tiny", RouteState.READY, "http://127.0.0.1:4000/v1")
REACH: dict[str, Any] = {
    "fleet_services": True,
    "proxy_reach_address": "10.0.0.7",
    "proxy_reach_sources": ["10.0.0.0/8"],
}


class House:
    """One host; `serve` is an agent's life on it, and there may be several in a row."""

    def __init__(self, state_root: Path) -> None:
        self.root = state_root
        (state_root / "agent").mkdir(parents=True, exist_ok=True)
        self.workers = FakeWorkers()
        self.clock = FakeClock()
        self.routes = [STARTING]

    def loop(self, version: str = "1.0", **settings: Any) -> ProxyLoop:
        values: dict[str, Any] = {"state_root": self.root, "models": ("tiny",), **settings}
        return ProxyLoop(
            workers=self.workers,
            clock=self.clock,
            settings=Settings(**values),
            interpreter=Interpreter("/opt/python"),
            keys=lambda: keys_of(StateRoot(self.root), Settings(**values).reach),
            memory=JsonFile(self.root / "proxy.json"),
            routes=lambda: self.routes,
            version=version,
        )

    @contextlib.asynccontextmanager
    async def serve(self, version: str = "1.0", **settings: Any) -> AsyncIterator[ProxyLoop]:
        loop = self.loop(version, **settings)
        loop.adopt()
        running = asyncio.create_task(loop.run())
        try:
            await self.clock.settle()
            yield loop
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    def files(self) -> dict[str, bytes]:
        return self.workers.files_of(self.workers.started[-1])

    def config(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.files()["config.json"])
        return told

    async def listens(self, port: int) -> None:
        """The last proxy that was started says that it listens."""
        self.files()["endpoint.json"] = json.dumps({"base_url": f"http://127.0.0.1:{port}/v1"}).encode()
        await self.clock.run_for(1)


def scenario(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), 20))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_it_is_ready_when_it_listens_and_shows_where(house: House) -> None:
    """The address and the file of the key are shown, the key is not; it is in no argument either."""

    async def play() -> None:
        async with house.serve() as loop:
            assert loop.snapshot()["phase"] == "starting"
            await house.listens(6481)
            shown = loop.snapshot()
            assert (shown["phase"], shown["baseUrl"]) == ("ready", "http://127.0.0.1:6481/v1")
            assert shown["keyFile"] == str(house.root / "agent" / "proxy.key")
            key = established_key(house.root / "agent" / "proxy.key")
            assert house.files()["api-key"] == key
            spec = house.workers.spec_of(house.workers.started[-1])
            assert key.decode() not in f"{shown}{spec}"
            assert (house.root / "agent" / "proxy.key").stat().st_mode & 0o777 == 0o600

    scenario(play)


def test_it_is_told_each_change_of_the_routes(house: House) -> None:
    """Also those from before it started, and each of them once."""

    async def play() -> None:
        async with house.serve() as loop:
            assert house.files()["routes.json"] == routes_to_json([STARTING])
            house.routes = [READY]
            loop.routes_changed()
            await house.clock.settle()
            assert house.files()["routes.json"] == routes_to_json([READY])

    scenario(play)


def test_routes_that_the_disk_does_not_take_are_written_later(house: House) -> None:
    """A full disk delays the news; it does not lose it."""

    class FullDisk(FakeWorkers):
        full = False

        def write_file(self, record: Any, name: str, content: bytes) -> None:
            if self.full:
                self.full = False
                raise WorkerError("no space")
            super().write_file(record, name, content)

    disk = house.workers = FullDisk()

    async def play() -> None:
        async with house.serve() as loop:
            await house.listens(6481)
            disk.full = True
            house.routes = [READY]
            loop.routes_changed()
            await house.clock.settle()
            assert house.files()["routes.json"] == routes_to_json([STARTING])
            await house.clock.run_for(2)
            assert house.files()["routes.json"] == routes_to_json([READY])

    scenario(play)


def test_the_next_agent_adopts_it_and_tells_it_the_news(house: House) -> None:
    """No second proxy, no stop, and the routes of now."""

    async def play() -> None:
        async with house.serve():
            await house.listens(6481)
        house.routes = [READY]
        # Before any loop runs: a server that is asked to leave must get no new requests.
        house.loop().adopt()
        assert house.files()["routes.json"] == routes_to_json([READY])
        async with house.serve() as loop:
            await house.clock.run_for(1)
            assert loop.snapshot()["baseUrl"] == "http://127.0.0.1:6481/v1"
            assert house.files()["routes.json"] == routes_to_json([READY])
        assert (len(house.workers.started), house.workers.stopped) == (1, [])

    scenario(play)


@pytest.mark.parametrize(
    "change",
    [{"version": "1.1"}, {"proxy_hold_seconds": 7}, {"proxy_port": 7000}, REACH],
    ids=["release", "limits", "port", "reachable"],
)
def test_another_configuration_is_another_proxy(house: House, change: dict[str, Any]) -> None:
    """The old one is asked to leave, and the new one waits for its port."""

    async def play() -> None:
        async with house.serve():
            await house.listens(6481)
        async with house.serve(**change):
            await house.clock.settle()
            assert house.workers.stopped == house.workers.started[:1]
            assert len(house.workers.started) == 2
            assert house.config()["port_patience_seconds"] > 0
            assert house.config()["port"] == change.get("proxy_port", 6481)

    scenario(play)


def test_another_key_is_another_proxy(house: House) -> None:
    """Who puts another key into the file is asked for that one from the next start on."""

    async def play() -> None:
        async with house.serve():
            await house.listens(6481)
        (house.root / "agent" / "proxy.key").write_text("mine\n")
        async with house.serve():
            assert house.files()["api-key"] == b"mine"

    scenario(play)


def test_what_the_proxy_says_of_its_other_door_decides(house: House) -> None:
    """It has a key of its own, which no argument shows; the end of the proxy ends its word."""

    async def play() -> None:
        async with house.serve(**REACH) as loop:
            key = house.files()["reach-key"]
            assert key == established_key(house.root / "agent" / "proxy-reach.key")
            assert key != house.files()["api-key"]
            assert house.config()["reach"]["address"] == "10.0.0.7"
            spec = house.workers.spec_of(house.workers.started[-1])
            assert key.decode() not in f"{loop.snapshot()}{spec}"
            await house.listens(6481)
            assert loop.why_not_reachable() == "the proxy is not ready"
            house.files()["reach.json"] = b'{"why_not": "no address of this host"}'
            assert loop.why_not_reachable() == "no address of this host"
            house.files()["reach.json"] = b'{"why_not": ""}'
            assert loop.why_not_reachable() == ""
            house.workers.finish(house.workers.started[-1], code=None, signal=9)
            await house.clock.settle()
            assert loop.why_not_reachable() == "the proxy is not ready"

    scenario(play)


def test_who_is_not_reachable_has_no_key_for_it(house: House) -> None:
    """None is made for a door that nobody asked for, nor for one that asks for none."""

    async def play() -> None:
        for settings in ({}, REACH | {"proxy_reach_without_key": True}):
            async with house.serve(**settings):
                await house.clock.settle()
                assert "reach-key" not in house.files()
        assert not (house.root / "agent" / "proxy-reach.key").exists()

    scenario(play)


def test_the_port_is_kept(house: House) -> None:
    """Where the usual port is taken another one is found once, and then stays the address of this host."""

    async def play() -> None:
        async with house.serve():
            told = house.config()
            assert (told["port"], told["any_port"], told["port_patience_seconds"]) == (6481, True, 0)
            await house.listens(40_123)
            house.workers.finish(house.workers.started[-1], code=None, signal=9)
            await house.clock.run_for(3)
            assert (len(house.workers.started), house.config()["port"]) == (2, 40_123)

    scenario(play)


def test_a_port_that_people_chose_is_no_matter_of_taste(house: House) -> None:
    """It is that one or none, and the reason says who has it."""

    async def play() -> None:
        async with house.serve(proxy_port=7000) as loop:
            assert (house.config()["port"], house.config()["any_port"]) == (7000, False)
            house.files()["reason.txt"] = b"port 7000 is taken by nginx (pid 1)"
            house.workers.finish(house.workers.started[-1], code=70)
            await house.clock.settle()
            shown = loop.snapshot()
            assert (shown["phase"], shown["baseUrl"]) == ("backoff", "")
            assert shown["reason"] == "port 7000 is taken by nginx (pid 1)"
            await house.clock.run_for(3)
            assert len(house.workers.started) == 2

    scenario(play)


@pytest.mark.parametrize("settings", [{"proxy": False}, {"models": ()}], ids=["off", "no models"])
def test_a_host_without_models_or_wish_has_none(house: House, settings: dict[str, Any]) -> None:
    """One that is left from before is asked to leave, and none is shown."""

    async def play() -> None:
        async with house.serve():
            await house.listens(6481)
        async with house.serve(**settings) as loop:
            await house.clock.settle()
            assert house.workers.known() == []
            assert loop.snapshot() == {}

    scenario(play)


def test_one_that_never_listens_is_replaced(house: House) -> None:
    """It gets a bounded time, and then another one is tried."""

    async def play() -> None:
        async with house.serve() as loop:
            await house.clock.run_for(31)
            assert house.workers.stopped == house.workers.started[:1]
            assert "does not listen" in loop.snapshot()["reason"]
            await house.clock.run_for(3)
            assert len(house.workers.started) == 2

    scenario(play)


def test_all_of_them_end_with_a_host_that_stops(house: House) -> None:
    """`stop_all` leaves no process and no folder."""

    async def play() -> None:
        async with house.serve() as loop:
            await house.listens(6481)
        await loop.stop_all()
        assert house.workers.known() == []

    scenario(play)


@pytest.mark.parametrize("content", ["", " \n", "two words"])
def test_a_key_file_without_a_key_is_told(tmp_path: Path, content: str) -> None:
    """It is neither taken as it is nor replaced, as people may have meant something."""
    path = tmp_path / "proxy.key"
    path.write_text(content)
    with pytest.raises(HostError, match="holds no key"):
        established_key(path)
    assert path.read_text() == content

"""Sleep and shutdown by logind, over a real bus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from journeyman.adapters.logind import LogindPower
from journeyman.errors import HostError
from journeyman.model.power import Going
from tests.support.fake_logind import FakeLogind, running_bus

pytestmark = pytest.mark.slow


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[str]:
    with running_bus(tmp_path) as address:
        yield address


class Ear:
    """Who listens, and what logind has said so far."""

    def __init__(self, logind: FakeLogind) -> None:
        self.logind = logind
        self.heard: list[tuple[str, list[str]]] = []
        self.news = asyncio.Event()

    async def going(self, why: Going) -> None:
        # The lock is looked at while it has to be held.
        self._note(why.value)

    def back(self) -> None:
        self._note("back")

    def _note(self, word: str) -> None:
        self.heard.append((word, self.logind.locks()))
        self.news.set()

    async def next_word(self) -> tuple[str, list[str]]:
        async with asyncio.timeout(30):
            await self.news.wait()
        self.news.clear()
        return self.heard[-1]


def listening(bus: str, logind: FakeLogind, test: Callable[[Ear], Awaitable[None]]) -> None:
    """Runs a test while the adapter listens."""

    async def run() -> None:
        ear = Ear(logind)
        power = LogindPower(timeout_seconds=10, bus=bus)
        listener = asyncio.create_task(power.listen(ear.going, ear.back))
        await test(ear)
        listener.cancel()
        await asyncio.gather(listener, return_exceptions=True)

    try:
        asyncio.run(run())
    finally:
        logind.close()


@pytest.mark.parametrize(
    ("signal", "why"), [("PrepareForSleep", "sleep"), ("PrepareForShutdown", "shutdown")]
)
def test_the_host_waits_for_our_good_bye(bus: str, signal: str, why: str) -> None:
    """The delay lock is held until what is to be done has been done, and is taken again afterwards."""

    async def test(ear: Ear) -> None:
        await asyncio.to_thread(ear.logind.wait_for_locks)
        wanted = ("Journeyman", "says good-bye to its control plane", "delay")
        assert sorted(ear.logind.asked) == [("shutdown", *wanted), ("sleep", *wanted)]
        assert await asyncio.to_thread(ear.logind.go, signal)
        both, other = ["shutdown", "sleep"], "shutdown" if why == "sleep" else "sleep"
        assert (await ear.next_word(), ear.logind.locks()) == ((why, both), [other])
        ear.logind.say(signal, going=False)
        assert await ear.next_word() == ("back", [other])
        await asyncio.to_thread(ear.logind.wait_for_locks, 1)
        assert ear.logind.locks() == both

    listening(bus, FakeLogind(bus), test)


def test_nobody_else_sends_us_to_sleep(bus: str) -> None:
    """A signal of that name by another one on the bus is no word of logind."""

    async def test(ear: Ear) -> None:
        await asyncio.to_thread(ear.logind.wait_for_locks)
        liar = FakeLogind(bus, name="org.example.Liar")
        liar.say("PrepareForShutdown", going=True)
        ear.logind.say("PrepareForSleep", going=True)
        assert (await ear.next_word())[0] == "sleep"
        assert [word for word, _ in ear.heard] == ["sleep"]
        liar.close()

    listening(bus, FakeLogind(bus), test)


def test_without_a_lock_we_still_hear(bus: str) -> None:
    """Where polkit refuses the lock the good-bye is said all the same, perhaps too late."""

    async def test(ear: Ear) -> None:
        assert await asyncio.to_thread(ear.logind.was_asked.wait, 30)
        ear.logind.say("PrepareForSleep", going=True)
        assert await ear.next_word() == ("sleep", [])

    listening(bus, FakeLogind(bus, refuses=True), test)


async def _ignore(_: Going) -> None:
    return


def test_no_bus_is_an_error_of_ours(tmp_path: Path) -> None:
    """Where nobody listens the port says so, and so it does when the bus goes away."""
    nowhere = LogindPower(timeout_seconds=5, bus=f"unix:path={tmp_path}/none")
    with pytest.raises(HostError, match="system bus"):
        asyncio.run(nowhere.listen(_ignore, lambda: None))

    async def leave() -> None:
        with running_bus(tmp_path) as address:
            logind = FakeLogind(address)
            power = LogindPower(timeout_seconds=10, bus=address)
            listener = asyncio.create_task(power.listen(_ignore, lambda: None))
            await asyncio.to_thread(logind.wait_for_locks)
        logind.close()
        with pytest.raises(HostError, match="no longer"):
            await listener

    asyncio.run(leave())

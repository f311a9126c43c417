"""Good-bye before a sleep, silence, and the end of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from journeyman.errors import HostError
from journeyman.loops.power_loop import PowerLoop
from journeyman.model.power import Going
from journeyman.settings import Settings
from tests.support.clock import FakeClock


class ScriptedPower:
    """Implements PowerEvents: says what the test says, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.listened = 0
        self.going: Callable[[Going], Awaitable[None]] | None = None
        self.back: Callable[[], None] | None = None

    async def listen(self, going: Callable[[Going], Awaitable[None]], back: Callable[[], None]) -> None:
        self.listened += 1
        if self.listened <= self.failures:
            raise HostError("deaf")
        self.going, self.back = going, back
        await asyncio.Event().wait()


class Bench:
    """A loop on a fake day, and what it has done."""

    def __init__(self, root: Path, power: ScriptedPower | None) -> None:
        self.clock = FakeClock()
        self.done: list[str] = []
        self.hangs = False
        self.settings = Settings(state_root=root, farewell_seconds=0.05)
        self.loop = PowerLoop(
            events=power,
            clock=self.clock,
            settings=self.settings,
            leave=self._leave,
            come_back=lambda: self.done.append("back"),
        )

    async def _leave(self, why: Going) -> None:
        self.done.append(why.value)
        if self.hangs:
            await asyncio.Event().wait()


def test_a_sleep_is_left_for_and_come_back_from(tmp_path: Path) -> None:
    """One good-bye, one return; a second word of the return changes nothing."""

    async def test() -> None:
        power = ScriptedPower()
        bench = Bench(tmp_path, power)
        running = asyncio.create_task(bench.loop.run())
        await bench.clock.settle()
        assert power.going is not None
        assert power.back is not None
        await power.going(Going.SLEEP)
        power.back()
        power.back()
        assert bench.done == ["sleep", "back"]
        await bench.clock.run_for(bench.settings.farewell_patience_seconds + 1)
        assert bench.done == ["sleep", "back"]
        running.cancel()

    asyncio.run(test())


def test_a_good_bye_that_hangs_holds_the_host_up_for_its_time_only(tmp_path: Path) -> None:
    """The lock is let go of before the host goes without us."""

    async def test() -> None:
        power = ScriptedPower()
        bench = Bench(tmp_path, power)
        bench.hangs = True
        running = asyncio.create_task(bench.loop.run())
        await bench.clock.settle()
        assert power.going is not None
        async with asyncio.timeout(30):
            await power.going(Going.SHUTDOWN)
        assert bench.done == ["shutdown"]
        running.cancel()

    asyncio.run(test())


def test_a_host_that_stays_is_not_silent_for_ever(tmp_path: Path) -> None:
    """A sleep that was announced and never came, or whose end nobody told, ends after a while awake."""

    async def test() -> None:
        power = ScriptedPower()
        bench = Bench(tmp_path, power)
        running = asyncio.create_task(bench.loop.run())
        await bench.clock.settle()
        assert power.going is not None
        await power.going(Going.SLEEP)
        await bench.clock.run_for(bench.settings.farewell_patience_seconds - 1)
        assert bench.done == ["sleep"]
        await bench.clock.run_for(2)
        assert bench.done == ["sleep", "back"]
        running.cancel()

    asyncio.run(test())


def test_a_host_that_cannot_be_heard_is_asked_again(tmp_path: Path) -> None:
    """Logind restarts, the bus comes late: neither ends the loop nor the agent."""

    async def test() -> None:
        power = ScriptedPower(failures=2)
        bench = Bench(tmp_path, power)
        running = asyncio.create_task(bench.loop.run())
        await bench.clock.settle()
        assert (power.listened, power.going) == (1, None)
        await bench.clock.run_for(2 * bench.settings.power_retry_seconds)
        assert power.listened == 3
        assert power.going is not None
        assert not running.done()
        running.cancel()

    asyncio.run(test())


def test_where_nobody_tells_nothing_is_asked(tmp_path: Path) -> None:
    """On phones and in containers the loop does nothing at all."""

    async def test() -> None:
        bench = Bench(tmp_path, None)
        running = asyncio.create_task(bench.loop.run())
        await bench.clock.run_for(1000)
        assert not running.done()
        assert bench.done == []
        running.cancel()

    asyncio.run(test())

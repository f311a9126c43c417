"""What a node says after its host has slept: gates and heartbeat together, on a day of the test's own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from journeyman.core.holds import Holds
from tests.agent.loops.test_gate_loop import MARKS
from tests.agent.loops.test_gate_loop import Bench as Gates
from tests.agent.loops.test_heartbeat_loop import Bench as Node


@dataclass
class Sleeper(Node):
    """A node that its gates hold."""

    gates: Gates = field(default_factory=Gates)

    def _live_holds(self, now: datetime) -> Holds:
        hold = self.gates.loop.hold()
        return Holds() if hold is None else Holds((hold,))


async def beats_after(root: Path, asleep: float, *, told: bool) -> tuple[Sleeper, list[tuple[float, str]]]:
    """The beats of the two minutes after a sleep: seconds awake, and phase.

    Args:
        root: a folder.
        asleep: how long the host slept, in seconds of its boot-time clock.
        told: whether somebody has told us that it is back.
    """
    node = Sleeper(root)
    node.gates = gates = Gates(clock=node.clock)
    for _ in range(4):
        await node.clock.run_for(MARKS.tick_idle_seconds)
        await gates.loop.sweep()
    async with node.beating() as loop:
        assert node.seen[-1].status.phase == "Ready"
        node.seen.clear()
        gates.asleep += asleep
        if told:
            gates.loop.woke()
        found = []
        for awake in range(120):
            # As soon as it can, before the sweep that would notice the sleep.
            loop.beat_soon()
            await node.clock.run_for(1)
            found.append((float(awake), str(node.seen[-1].status.phase)))
            if awake % MARKS.tick_idle_seconds == MARKS.tick_idle_seconds - 1:
                await gates.loop.sweep()
    return node, found


@pytest.mark.parametrize(
    ("asleep", "told"),
    [
        pytest.param(3600, False, id="an-hour"),
        pytest.param(31, False, id="just-a-sleep"),
        pytest.param(2, True, id="as-short-as-nobody-would-notice"),
    ],
)
def test_no_ready_beat_in_the_first_minute_awake(tmp_path: Path, asleep: float, *, told: bool) -> None:
    """Two fresh sweeps and a minute without another sleep come first, and not one beat comes before them."""

    async def test() -> None:
        node, found = await beats_after(tmp_path, asleep, told=told)
        early = {phase for awake, phase in found if awake < MARKS.awake_seconds}
        assert early == {"Draining"}
        assert found[-1][1] == "Ready"
        assert len([at for at in node.gates.sensors.swept_at if at > node.gates.sensors.swept_at[3]]) >= 2
        assert node.gates.sensors.forgotten >= 1

    asyncio.run(test())


def test_a_pause_that_is_no_sleep_changes_nothing(tmp_path: Path) -> None:
    """Clocks differ by a rounding, and nobody has said anything: the node stays Ready."""

    async def test() -> None:
        _, found = await beats_after(tmp_path, 1, told=False)
        assert {phase for _, phase in found} == {"Ready"}

    asyncio.run(test())


def test_whoever_holds_leases_is_told_of_a_sleep_once() -> None:
    """The sweep that notices it says so, and no later one."""

    async def test() -> None:
        gates = Gates()
        await gates.sweeps(4)
        gates.asleep += 3600
        await gates.sweeps(3)
        assert [slept > 0 for _, slept in gates.recorded[4:]] == [True, False, False]

    asyncio.run(test())

"""Real loops, a real plane, and a network that follows seeded schedules of faults between them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.support.bad_network import Run
from tests.support.plane import plane_in_this_loop
from tests.support.virtual_time import VirtualClock, run_virtually

# Of one seed alone: JOURNEYMAN_TEST_SEED=17 ./scripts/test tests/e2e/test_bad_network.py
ONLY = os.environ.get("JOURNEYMAN_TEST_SEED")
TOGETHER = 10
DEFAULT_SEEDS = 60
ALL_SEEDS = 1000


def groups(first: int, end: int) -> list[range]:
    """Schedules that run beside each other, as most of a schedule is waiting."""
    if ONLY is not None:
        return [range(int(ONLY), int(ONLY) + 1)]
    return [range(start, min(start + TOGETHER, end)) for start in range(first, end, TOGETHER)]


def first_of(seeds: range) -> str:
    """The name of a group."""
    return f"from-{seeds.start}"


async def one(run: Run) -> None:
    """Raises AssertionError with how to repeat it."""
    try:
        await run.check()
    except AssertionError as error:
        command = f"JOURNEYMAN_TEST_SEED={run.seed} ./scripts/test tests/e2e/test_bad_network.py"
        raise AssertionError(f"seed {run.seed} ({command}): {error}") from error


def check(seeds: range, quick_folder: Path) -> None:
    async def scenario() -> None:
        async with plane_in_this_loop(quick_folder, VirtualClock()) as plane:
            await asyncio.gather(*(one(Run(seed, plane, quick_folder)) for seed in seeds))

    run_virtually(scenario(), within_seconds=86_400)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", groups(0, DEFAULT_SEEDS), ids=first_of)
def test_every_task_ends_once_through_a_bad_network(seeds: range, quick_folder: Path) -> None:
    """Twenty tasks, two agents: each task ends once, runs once, has its own result, and no agent gives up."""
    check(seeds, quick_folder)


@pytest.mark.full
@pytest.mark.skipif(ONLY is not None, reason="cannot run here: one seed was asked for")
@pytest.mark.parametrize("seeds", groups(DEFAULT_SEEDS, ALL_SEEDS), ids=first_of)
def test_every_task_ends_once_through_a_thousand_bad_networks(seeds: range, quick_folder: Path) -> None:
    """The same, with seeds that no commit waits for."""
    check(seeds, quick_folder)

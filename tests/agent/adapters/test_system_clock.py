"""The host's clocks behind the port."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from journeyman.adapters.system_clock import SystemClock


def test_now_is_utc_and_monotonic_never_steps_back() -> None:
    """The wall clock names its zone; the other one only grows."""
    clock = SystemClock()
    before = datetime.now(UTC)
    assert before <= clock.now() <= datetime.now(UTC)
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()


def test_no_time_to_sleep_returns_at_once() -> None:
    """Zero and less are no wait, so that callers need not check."""

    async def scenario() -> None:
        async with asyncio.timeout(5):
            await SystemClock().sleep(0)
            await SystemClock().sleep(-3600)

    asyncio.run(scenario())


def test_a_sleep_lasts_at_least_as_long_as_asked() -> None:
    """By the monotonic clock."""

    async def scenario() -> None:
        clock = SystemClock()
        started = clock.monotonic()
        await clock.sleep(0.02)
        # The loop's timer may fire one tick of its resolution early.
        assert clock.monotonic() - started >= 0.019

    asyncio.run(scenario())

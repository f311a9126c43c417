"""The clocks of the host; nothing else in the agent reads them."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """The `Clock` port on the host's clocks.

    `monotonic` stands still while a machine sleeps (CLOCK_MONOTONIC on Linux, mach_absolute_time on
    macOS), so a gap between it and `now` is how a sleep is noticed.
    """

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

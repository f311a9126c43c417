"""Time, as the agent needs it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Time.  Only `adapters/system_clock.py` may read the clocks of the host."""

    def now(self) -> datetime:
        """The wall clock, in UTC.  It may jump; nothing is measured with it."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, never stepping back; for every interval and deadline."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`; at once if it is zero or less.  Cancellable."""
        ...

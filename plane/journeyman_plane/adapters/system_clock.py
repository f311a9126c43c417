"""The clock of the host."""

from __future__ import annotations

from datetime import UTC, datetime


class SystemClock:
    """The plane's Clock on the wall clock of the host."""

    def now(self) -> datetime:
        return datetime.now(UTC)

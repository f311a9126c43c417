"""The Clock port: the only place of the updater that asks what time it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from journeyman_updater.contract import boot_id


class SystemClock:
    """Implements the port Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def boot_id(self) -> str:
        return boot_id()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

"""/sys/devices/system/cpu/*/thermal_throttle: how often Intel CPUs were slowed down by heat."""

from __future__ import annotations

import re
from collections.abc import Callable

from journeyman.adapters.sensors.access import HostFiles, number
from journeyman.model.readings import Measurement, Quality, missing

FOLDER = "sys/devices/system/cpu"


class CpuThrottle:
    """The rate at which the counters of all CPUs rise."""

    name = "cpu_throttle"
    period_seconds = 5.0

    def __init__(self, files: HostFiles, boot: Callable[[], float]) -> None:
        self._files = files
        self._boot = boot
        self._before: tuple[float, float] | None = None

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        now = self._boot()
        total = self._total()
        if total is None:
            self._before = None
            return [missing("thermal.throttle_rate", "per_second", self.name, Quality.UNSUPPORTED)]
        before, self._before = self._before, (now, total)
        if before is None or now <= before[0]:
            return [Measurement("thermal.throttle_count", total, "count", self.name)]
        rate = max(0.0, total - before[1]) / (now - before[0])
        return [
            Measurement("thermal.throttle_count", total, "count", self.name),
            Measurement("thermal.throttle_rate", rate, "per_second", self.name),
        ]

    def _total(self) -> float | None:
        counts = [
            number(self._files.text(f"{FOLDER}/{cpu}/thermal_throttle/{kind}_throttle_count"))
            for cpu in self._files.names(FOLDER)
            if re.fullmatch(r"cpu\d+", cpu)
            for kind in ("core", "package")
        ]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

"""/proc/pressure/memory: the share of time in which all work waited for memory."""

from __future__ import annotations

import re
from collections.abc import Callable

from journeyman.adapters.sensors.access import HostFiles
from journeyman.model.readings import Measurement, Quality, missing

FULL = re.compile(r"^full avg10=([\d.]+).* total=(\d+)", re.MULTILINE)
# The kernel updates its averages every two seconds; over less than this a difference is noise.
SHORTEST_WINDOW_SECONDS = 10.0


class PressureStall:
    """Our own difference of the running total, in microseconds; `avg10` until there are ten seconds of it.

    Args:
        files: the host.
        boot: the boot-time clock.
        path: the file: that of the host, or of a control group.
    """

    period_seconds = 5.0

    def __init__(
        self, files: HostFiles, boot: Callable[[], float], path: str = "proc/pressure/memory"
    ) -> None:
        self._files = files
        self._boot = boot
        self._path = path
        self.name = path.replace("/", ".")
        self._samples: list[tuple[float, int]] = []

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._files.text(self._path)
        if text.value is None:
            self._samples.clear()
            return [missing("memory.stall", "percent", self._path, text.quality, text.detail)]
        match = FULL.search(text.value)
        if match is None:
            return [missing("memory.stall", "percent", self._path, Quality.ERROR, "no line `full`")]
        own = self._own_percent(int(match[2]))
        percent, over = (float(match[1]), SHORTEST_WINDOW_SECONDS) if own is None else own
        value = min(100.0, percent)
        return [Measurement("memory.stall", value, "percent", self._path, over_seconds=over)]

    def _own_percent(self, total_microseconds: int) -> tuple[float, float] | None:
        """The share, and the seconds of which it is one."""
        now = self._boot()
        self._samples.append((now, total_microseconds))
        old = [one for one in self._samples if now - one[0] >= SHORTEST_WINDOW_SECONDS]
        if not old:
            return None
        # Newer samples stay for the next windows.
        self._samples = [old[-1], *(one for one in self._samples if one[0] > old[-1][0])]
        then, before = old[-1]
        over = now - then
        return max(0, total_microseconds - before) / 1e6 / over * 100, over

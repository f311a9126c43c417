"""/proc/meminfo: what is available, with the part of the ZFS cache that ZFS would give back."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import HostFiles
from journeyman.model.readings import Measurement, Quality, missing

# One line has no space before its number ("ShadowCallStack:10373888 kB", psutil#2809).
LINE = re.compile(r"^([^:\s]+):\s*(\d+)", re.MULTILINE)
ARC_LINE = re.compile(r"^(size|c_min)\s+\d+\s+(\d+)", re.MULTILINE)
KIB = 1024


class Meminfo:
    """Total, available and swap in use."""

    name = "meminfo"
    period_seconds = 5.0

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._files.text("proc/meminfo")
        if text.value is None:
            return [missing("memory.available", "bytes", self.name, text.quality, text.detail)]
        values = {name: int(value) * KIB for name, value in LINE.findall(text.value)}
        total = values.get("MemTotal", 0)
        if not total:
            return [missing("memory.available", "bytes", self.name, Quality.ERROR, "no MemTotal")]
        swap_used = max(0, values.get("SwapTotal", 0) - values.get("SwapFree", 0))
        swap_detail = "in memory (zram)" if self._has_zram() else ""
        return [
            Measurement("memory.total", total, "bytes", self.name),
            self._available(values, total),
            Measurement("memory.swap_used", swap_used, "bytes", self.name, detail=swap_detail),
        ]

    def _available(self, values: dict[str, int], total: int) -> Measurement:
        available = values.get("MemAvailable", 0)
        detail = ""
        if not available:
            # Old kernels lack it and some report 0 for it; what is free is the least that there is.
            available, detail = values.get("MemFree", 0), "MemFree, as MemAvailable is missing or 0"
        given_back = self._arc_above_minimum()
        if given_back:
            available, detail = available + given_back, f"{given_back} of it in the ZFS cache"
        if available > total:
            return missing("memory.available", "bytes", self.name, Quality.SUSPECT, "more than the total")
        return Measurement("memory.available", available, "bytes", self.name, detail=detail)

    def _arc_above_minimum(self) -> int:
        text = self._files.text("proc/spl/kstat/zfs/arcstats").value or ""
        values = {name: int(value) for name, value in ARC_LINE.findall(text)}
        return max(0, values.get("size", 0) - values.get("c_min", 0))

    def _has_zram(self) -> bool:
        return "/dev/zram" in (self._files.text("proc/swaps").value or "")

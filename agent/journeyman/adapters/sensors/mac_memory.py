"""macOS: the kernel's pressure level, swap in use, what is compressed, and whether pages come back in.

Free bytes say little here: macOS keeps few pages free by design.  `vm.memory_pressure` is a page count and
no level (psutil#2725), and swap used of swap total is near one on healthy Macs, as the total grows.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from journeyman.adapters.sensors.access import Run, Text
from journeyman.model.readings import Measurement, Quality, missing

DEADLINE_SECONDS = 2.0
# XNU's kern_memorystatus.h: 1 normal, 2 warning, 4 critical.
LEVELS = {1.0, 2.0, 4.0}
SWAP_USED = re.compile(r"used\s*=\s*([\d.]+)([KMGT])")
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
PAGE_SIZE = re.compile(r"page size of (\d+) bytes")
VM_LINE = re.compile(r'^"?([^":]+)"?:\s+(\d+)\.', re.MULTILINE)
PURGED_AT_NEED = ("Pages free", "Pages speculative", "Pages inactive", "Pages purgeable")


class MacMemory:
    """Readings for the worse of level, swap and swap-ins."""

    name = "mac_memory"
    period_seconds = 5.0

    def __init__(self, run: Run, boot: Callable[[], float]) -> None:
        self._run = run
        self._boot = boot
        self._before: tuple[float, float] | None = None

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        return [self._level(), self._total(), self._swap(), *self._vm_stat()]

    def _level(self) -> Measurement:
        name, key = "memory.pressure_level", "kern.memorystatus_vm_pressure_level"
        text = self._sysctl(key)
        value = _float(text)
        if value is None:
            return missing(
                name, "level", key, text.quality if text.value is None else Quality.ERROR, text.detail
            )
        if value not in LEVELS:
            return missing(name, "level", key, Quality.SUSPECT, f"{value:g} is no level")
        return Measurement(name, value, "level", key)

    def _total(self) -> Measurement:
        text = self._sysctl("hw.memsize")
        value = _float(text)
        if not value:
            return missing("memory.total", "bytes", "hw.memsize", Quality.ERROR, text.detail)
        return Measurement("memory.total", value, "bytes", "hw.memsize")

    def _swap(self) -> Measurement:
        text = self._sysctl("vm.swapusage")
        match = SWAP_USED.search(text.value or "")
        if match is None:
            quality = text.quality if text.value is None else Quality.ERROR
            return missing("memory.swap_used", "bytes", "vm.swapusage", quality, text.detail)
        return Measurement("memory.swap_used", float(match[1]) * UNITS[match[2]], "bytes", "vm.swapusage")

    def _vm_stat(self) -> list[Measurement]:
        text = self._run(["vm_stat"], DEADLINE_SECONDS)
        page = PAGE_SIZE.search(text.value or "")
        if text.value is None or page is None:
            quality = text.quality if text.value is None else Quality.ERROR
            return [missing("memory.swap_in_rate", "per_second", "vm_stat", quality, text.detail)]
        pages = {name.strip(): float(count) for name, count in VM_LINE.findall(text.value)}
        size = float(page[1])
        found = [self._swap_in_rate(pages)]
        if "Pages occupied by compressor" in pages:
            compressed = pages["Pages occupied by compressor"] * size
            found.append(Measurement("memory.compressed", compressed, "bytes", "vm_stat"))
        available = sum(pages.get(name, 0.0) for name in PURGED_AT_NEED) * size
        return [*found, Measurement("memory.available", available, "bytes", "vm_stat")]

    def _swap_in_rate(self, pages: dict[str, float]) -> Measurement:
        """Pages that came back from swap each second; nobody knows it before the second look."""
        now, total = self._boot(), pages.get("Swapins")
        before, self._before = self._before, None if total is None else (now, total)
        if total is None or before is None or now <= before[0]:
            detail = "no earlier sample"
            return missing("memory.swap_in_rate", "per_second", "vm_stat", Quality.UNSUPPORTED, detail)
        rate = max(0.0, total - before[1]) / (now - before[0])
        return Measurement("memory.swap_in_rate", rate, "per_second", "vm_stat")

    def _sysctl(self, key: str) -> Text:
        return self._run(["sysctl", "-n", key], DEADLINE_SECONDS)


def _float(text: Text) -> float | None:
    try:
        return None if text.value is None else float(text.value.strip())
    except ValueError:
        return None

"""Raspberry Pi: what the firmware limits at this moment; what it once did is history and gates nothing."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import HostFiles, Run, Text
from journeyman.model.readings import Measurement, Quality, missing

SYSFS = "sys/devices/platform/soc/soc:firmware/get_throttled"
DEADLINE_SECONDS = 2.0
THROTTLED = re.compile(r"throttled=0x([0-9a-fA-F]+)")
# Bits 0 to 3 are now, 16 to 19 the same since boot (Raspberry Pi documentation, get_throttled).
UNDER_VOLTAGE, LIMITED_NOW, SINCE_BOOT = 0x1, 0xE, 0xF0000


class Vcgencmd:
    """Under-voltage, and any limit by heat or frequency."""

    name = "vcgencmd"
    period_seconds = 5.0

    def __init__(self, files: HostFiles, run: Run) -> None:
        self._files = files
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        bits, text = self._bits()
        if bits is None:
            return [missing("pi.throttled_now", "flag", self.name, text.quality, text.detail)]
        return [
            Measurement("pi.throttled_now", float(bool(bits & LIMITED_NOW)), "flag", self.name),
            Measurement("pi.under_voltage_now", float(bool(bits & UNDER_VOLTAGE)), "flag", self.name),
            Measurement("pi.limited_since_boot", float(bool(bits & SINCE_BOOT)), "flag", self.name),
        ]

    def _bits(self) -> tuple[int | None, Text]:
        """The file first: it needs no child; it has the same number without its 0x."""
        text = self._files.text(SYSFS)
        if text.value is not None:
            return _hexadecimal(text.value), Text(None, Quality.ERROR, f"{text.value[:40]!r} is no number")
        text = self._run(["vcgencmd", "get_throttled"], DEADLINE_SECONDS)
        match = THROTTLED.search(text.value or "")
        if match is None:
            return None, text if text.value is None else Text(None, Quality.ERROR, text.value[:60])
        return int(match[1], 16), text


def _hexadecimal(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None

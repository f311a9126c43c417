"""macOS: thermal pressure, each time from a fresh process, as a long-lived one sees a value that sticks.

`pmset -g therm` has numbers on Intel only.  Elsewhere it prints notes for ever, which mean "unsupported".
"""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import Run, plausible
from journeyman.model.readings import Measurement, Quality, missing

DEADLINE_SECONDS = 2.0
KEY = "com.apple.system.thermalpressurelevel"
LEVEL = re.compile(rf"^{re.escape(KEY)}\s+(\d+)", re.MULTILINE)
LIMIT = re.compile(r"CPU_Speed_Limit\s*=\s*(\d+)")
# OSThermalNotification.h for macOS: nominal, moderate, heavy, trapping, sleeping.
HIGHEST_LEVEL = 4


class MacThermal:
    """`thermal.pressure_level` and `thermal.speed_limit`."""

    name = "mac_thermal"
    period_seconds = 5.0

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        return [self._level(), self._limit()]

    def _level(self) -> Measurement:
        name, unit = "thermal.pressure_level", "level"
        text = self._run(["notifyutil", "-g", KEY], DEADLINE_SECONDS)
        if text.value is None:
            return missing(name, unit, "notifyutil", text.quality, text.detail)
        match = LEVEL.search(text.value)
        if match is None:
            return missing(name, unit, "notifyutil", Quality.ERROR, text.value.strip())
        return plausible(name, float(match[1]), unit, "notifyutil", low=0, high=HIGHEST_LEVEL)

    def _limit(self) -> Measurement:
        name, unit = "thermal.speed_limit", "percent"
        text = self._run(["pmset", "-g", "therm"], DEADLINE_SECONDS)
        if text.value is None:
            return missing(name, unit, "pmset", text.quality, text.detail)
        match = LIMIT.search(text.value)
        if match is None:
            return missing(name, unit, "pmset", Quality.UNSUPPORTED, "no CPU_Speed_Limit is reported")
        return plausible(name, float(match[1]), unit, "pmset", low=0, high=100)

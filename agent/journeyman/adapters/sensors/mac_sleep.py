"""macOS: whether the closed lid will put the machine to sleep, whatever assertion is held."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import Run
from journeyman.model.readings import Measurement, Quality, missing

DEADLINE_SECONDS = 2.0
STATE = re.compile(r'"AppleClamshellState"\s*=\s*(Yes|No)')
CAUSES_SLEEP = re.compile(r'"AppleClamshellCausesSleep"\s*=\s*(Yes|No)')


class MacSleep:
    """`sleep.lid_closed`: shut, and no external display and power that would keep it awake."""

    name = "mac_sleep"
    period_seconds = 15.0

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._run(["ioreg", "-r", "-k", "AppleClamshellState", "-d", "1"], DEADLINE_SECONDS)
        if text.value is None:
            return [missing("sleep.lid_closed", "flag", "ioreg", text.quality, text.detail)]
        state = STATE.search(text.value)
        if state is None:
            return [missing("sleep.lid_closed", "flag", "ioreg", Quality.UNSUPPORTED, "no lid")]
        causes = CAUSES_SLEEP.search(text.value)
        stays_awake = causes is not None and causes[1] == "No"
        closed = state[1] == "Yes" and not stays_awake
        return [Measurement("sleep.lid_closed", float(closed), "flag", "ioreg")]

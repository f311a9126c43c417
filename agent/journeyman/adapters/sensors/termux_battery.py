"""Termux: `termux-battery-status`, which hangs every now and then and when its app is missing.

It is asked once a minute, has eight seconds, and loses its whole process group after that; the sweep backs
off and runs one child at a time.
"""

from __future__ import annotations

from journeyman.adapters.sensors.access import Run
from journeyman.adapters.sensors.battery_status import battery_measurements
from journeyman.model.readings import Measurement, missing

PROGRAM = "termux-battery-status"
DEADLINE_SECONDS = 8.0


class TermuxBattery:
    """Plug, charge, temperature and health of a phone."""

    name = "termux_battery"
    period_seconds = 60.0

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._run([PROGRAM], DEADLINE_SECONDS)
        if text.value is None:
            return [
                missing(name, unit, PROGRAM, text.quality, text.detail)
                for name, unit in (
                    ("power.on_battery", "flag"),
                    ("power.charge", "percent"),
                    ("battery.temperature", "celsius"),
                )
            ]
        return battery_measurements(text.value, PROGRAM)

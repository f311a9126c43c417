"""/sys/class/hwmon: the CPU's own sensors, one reading a file; a bad file costs one reading, not all."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import HostFiles, no_number, number, plausible
from journeyman.adapters.sensors.thermal_zones import (
    CPU_HIGH_CELSIUS,
    CPU_LOW_CELSIUS,
    CRITICAL_HIGH_CELSIUS,
    CRITICAL_LOW_CELSIUS,
)
from journeyman.model.readings import Measurement, Quality, missing

FOLDER = "sys/class/hwmon"
CPU_CHIPS = {"coretemp", "k10temp", "zenpower", "cpu_thermal"}
# On some Ryzens Tctl is the temperature plus an offset for the fan curve; these labels are the real one.
REAL_LABELS = re.compile(r"Tdie|Tccd\d+")


class Hwmon:
    """CPU chips: the margin to `temp*_crit` where it is plausible, else the temperature."""

    name = "hwmon"
    period_seconds = 5.0

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        found = [
            one for folder in self._files.names(FOLDER) for one in self._chip(f"{FOLDER}/{folder}", folder)
        ]
        return found or [missing("thermal.cpu", "celsius", self.name, Quality.UNSUPPORTED, "no CPU chip")]

    def _chip(self, folder: str, short: str) -> list[Measurement]:
        chip = self._files.constant(f"{folder}/name").value or ""
        if chip not in CPU_CHIPS:
            return []
        inputs = [name[:-6] for name in self._files.names(folder) if re.fullmatch(r"temp\d+_input", name)]
        real = [stem for stem in inputs if REAL_LABELS.fullmatch(self._label(folder, stem))]
        return [self._input(folder, stem, f"{short}/{chip}/{stem}") for stem in real or inputs]

    def _label(self, folder: str, stem: str) -> str:
        return self._files.constant(f"{folder}/{stem}_label").value or ""

    def _input(self, folder: str, stem: str, source: str) -> Measurement:
        text = self._files.text(f"{folder}/{stem}_input")
        celsius = number(text, 0.001)
        if celsius is None:
            return no_number("thermal.cpu", "celsius", source, text)
        if celsius == 0.0:
            return missing("thermal.cpu", "celsius", source, Quality.SUSPECT, "exactly 0")
        found = plausible(
            "thermal.cpu", celsius, "celsius", source, low=CPU_LOW_CELSIUS, high=CPU_HIGH_CELSIUS
        )
        critical = number(self._files.constant(f"{folder}/{stem}_crit"), 0.001)
        if found.value is None or critical is None:
            return found
        if not CRITICAL_LOW_CELSIUS <= critical <= CRITICAL_HIGH_CELSIUS:
            return found
        detail = f"{celsius:g} of {critical:g}"
        return Measurement("thermal.cpu_margin", critical - celsius, "celsius", source, detail=detail)

"""/sys/class/thermal: zones of the kernel, with their trip points by type.

psutil divides critical trips twice by 1000 and loses all sensors over one bad file, so sysfs is read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from journeyman.adapters.sensors.access import HostFiles, no_number, number, plausible
from journeyman.core.gates.frozen import Moves, is_frozen, seen
from journeyman.model.readings import Measurement, Quality, missing

FOLDER = "sys/class/thermal"
CPU_TYPE = re.compile(r"x86_pkg_temp|TCPU|cpu[-_]?thermal.*|soc.*|cpu\d*.*|.*-cpu-thermal", re.IGNORECASE)
LAST_RESORT = "acpitz"
# Trips outside this band are junk, such as the -274000 that throttled a machine for ever (thermald#550).
CRITICAL_LOW_CELSIUS, CRITICAL_HIGH_CELSIUS = 60.0, 125.0
CPU_LOW_CELSIUS, CPU_HIGH_CELSIUS = -20.0, 125.0
FROZEN_SECONDS, FROZEN_READS = 600.0, 20


class ThermalZones:
    """CPU zones: the margin to the critical trip where there is one, else the temperature.

    Args:
        files: the host.
        boot: the boot-time clock.
        busy: whether work of ours runs; only then must a temperature move.
    """

    name = "thermal_zones"
    period_seconds = 5.0

    def __init__(self, files: HostFiles, boot: Callable[[], float], busy: Callable[[], bool]) -> None:
        self._files = files
        self._boot = boot
        self._busy = busy
        self._moves: dict[str, Moves] = {}

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        zones = [name for name in self._files.names(FOLDER) if name.startswith("thermal_zone")]
        types = {zone: self._files.constant(f"{FOLDER}/{zone}/type").value or "" for zone in zones}
        chosen = [zone for zone in zones if CPU_TYPE.fullmatch(types[zone])]
        chosen = chosen or [zone for zone in zones if types[zone] == LAST_RESORT]
        if not chosen:
            return [missing("thermal.cpu", "celsius", self.name, Quality.UNSUPPORTED, "no CPU zone")]
        return [self._zone(zone, types[zone]) for zone in chosen]

    def _zone(self, zone: str, kind: str) -> Measurement:
        source = f"{zone}/{kind}"
        text = self._files.text(f"{FOLDER}/{zone}/temp")
        celsius = number(text, 0.001)
        if celsius is None:
            return no_number("thermal.cpu", "celsius", source, text)
        if celsius == 0.0:
            return missing("thermal.cpu", "celsius", source, Quality.SUSPECT, "exactly 0")
        if self._is_frozen(zone, text.value or ""):
            return missing("thermal.cpu", "celsius", source, Quality.SUSPECT, f"frozen at {celsius:g}")
        found = plausible(
            "thermal.cpu", celsius, "celsius", source, low=CPU_LOW_CELSIUS, high=CPU_HIGH_CELSIUS
        )
        critical = self._critical(zone)
        if found.value is None or critical is None:
            return found
        detail = f"{celsius:g} of {critical:g}"
        return Measurement("thermal.cpu_margin", critical - celsius, "celsius", source, detail=detail)

    def _critical(self, zone: str) -> float | None:
        """The critical trip, found by its type; the numbers of trips mean nothing."""
        folder = f"{FOLDER}/{zone}"
        for name in self._files.names(folder):
            match = re.fullmatch(r"trip_point_(\d+)_type", name)
            if match is None or self._files.constant(f"{folder}/{name}").value != "critical":
                continue
            celsius = number(self._files.constant(f"{folder}/trip_point_{match[1]}_temp"), 0.001)
            if celsius is not None and CRITICAL_LOW_CELSIUS <= celsius <= CRITICAL_HIGH_CELSIUS:
                return celsius
        return None

    def _is_frozen(self, zone: str, text: str) -> bool:
        now = self._boot()
        if not self._busy():
            self._moves.pop(zone, None)
            return False
        self._moves[zone] = seen(self._moves.get(zone), text, now)
        return is_frozen(self._moves[zone], now, reads=FROZEN_READS, for_seconds=FROZEN_SECONDS)

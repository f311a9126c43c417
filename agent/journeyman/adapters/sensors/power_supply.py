"""/sys/class/power_supply: whether the host runs on its battery, and how full that is.

psutil takes one battery by the order of names and one adapter by its name; two batteries, docks, UCSI ports
and mice are common, so supplies are found here by type and scope.
"""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.adapters.sensors.access import HostFiles, number
from journeyman.model.readings import Measurement, Quality, missing

FOLDER = "sys/class/power_supply"
# Below this a "discharging" battery gives nothing: firmware says so at a charge limit with the plug in.
DRAIN_MICROAMPERES = 50_000.0
FULL_PERCENT = 100


@dataclass(frozen=True)
class _Supply:
    kind: str
    online: bool | None
    status: str
    charge: float | None
    full: float
    microamperes: float | None


class PowerSupply:
    """System batteries and adapters; batteries of devices (scope `Device`) are none of the host's."""

    name = "power_supply"
    period_seconds = 15.0

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        supplies = [self._supply(name) for name in self._files.names(FOLDER)]
        system = [supply for supply in supplies if supply is not None]
        batteries = [supply for supply in system if supply.kind == "Battery"]
        ups = [supply for supply in system if supply.kind == "UPS"]
        found = [Measurement("power.ups_on_battery", float(_drains(one)), "flag", self.name) for one in ups]
        if not batteries:
            return [*found, missing("power.on_battery", "flag", self.name, Quality.UNSUPPORTED, "no battery")]
        return [*found, self._on_battery(system, batteries), self._charge(batteries)]

    def _on_battery(self, system: list[_Supply], batteries: list[_Supply]) -> Measurement:
        plugged = any(supply.online for supply in system if supply.kind in {"Mains", "USB", "Wireless"})
        if plugged:
            return Measurement("power.on_battery", 0.0, "flag", self.name)
        if not any(battery.status for battery in batteries):
            detail = "no battery tells its status"
            return missing("power.on_battery", "flag", self.name, Quality.ERROR, detail)
        draining = any(_drains(battery) for battery in batteries)
        return Measurement("power.on_battery", float(draining), "flag", self.name)

    def _charge(self, batteries: list[_Supply]) -> Measurement:
        """The charge of all batteries together, weighted by what each holds."""
        known = [battery for battery in batteries if battery.charge is not None]
        if not known:
            return missing("power.charge", "percent", self.name, Quality.ERROR, "no battery tells its charge")
        weight = sum(battery.full for battery in known)
        percent = sum((battery.charge or 0.0) * battery.full for battery in known) / weight
        return Measurement("power.charge", percent, "percent", self.name)

    def _supply(self, name: str) -> _Supply | None:
        folder = f"{FOLDER}/{name}"
        kind = self._files.constant(f"{folder}/type").value or ""
        scope = self._files.constant(f"{folder}/scope").value
        present = self._files.text(f"{folder}/present").value
        if not kind or scope == "Device" or present == "0":
            return None
        online = number(self._files.text(f"{folder}/online"))
        charge = number(self._files.text(f"{folder}/capacity"))
        if charge is not None and not 0 <= charge <= FULL_PERCENT:
            charge = None
        full = number(self._files.text(f"{folder}/energy_full"))
        return _Supply(
            kind=kind,
            online=None if online is None else online > 0,
            status=self._files.text(f"{folder}/status").value or "",
            charge=charge,
            # A battery that does not tell its size counts like one of 50 Wh, in microwatt-hours.
            full=full if full is not None and full > 0 else 50_000_000.0,
            microamperes=self._microamperes(folder),
        )

    def _microamperes(self, folder: str) -> float | None:
        amperes = number(self._files.text(f"{folder}/current_now"))
        if amperes is not None:
            return abs(amperes)
        watts = number(self._files.text(f"{folder}/power_now"))
        volts = number(self._files.text(f"{folder}/voltage_now"))
        if watts is None:
            return None
        # Most packs have 11 V or so; only the order of magnitude matters for "gives nothing".
        return abs(watts) / (volts / 1e6 if volts else 11.0)


def _drains(battery: _Supply) -> bool:
    if battery.status != "Discharging":
        return False
    return battery.microamperes is None or battery.microamperes > DRAIN_MICROAMPERES

"""PRoot: the file that a loop on the Termux side renames into a folder that the guest sees.

`{"bootSeconds": 1234.5, "battery": {...}, "wifi": "COMPLETED"}`: `battery` is what termux-battery-status
printed, `wifi` the `supplicant_state` of termux-wifi-connectioninfo (empty where it gave none), `bootSeconds`
the boot-time clock before both; guest and host share that clock.  `proot/termux` writes it.
"""

from __future__ import annotations

import json

from journeyman.adapters.sensors.access import HostFiles
from journeyman.adapters.sensors.battery_status import at_time, battery_measurements
from journeyman.model.readings import Measurement, Quality, missing

METERED = "network.metered"
# android.net.wifi.SupplicantState: the only one in which packets go over the Wi-Fi.
CONNECTED = "COMPLETED"


class Sidecar:
    """Battery and link as the Termux side saw them, with the age that they have.

    Args:
        files: the guest.
        path: where the file lies, relative to the root.
    """

    name = "sidecar"
    period_seconds = 60.0

    def __init__(self, files: HostFiles, path: str) -> None:
        self._files = files
        self._path = path

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._files.text(self._path)
        if text.value is None:
            return self._missing(text.quality, text.detail)
        try:
            found = json.loads(text.value)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("battery"), dict):
            return self._missing(Quality.ERROR, "no battery in the file")
        stamp = found.get("bootSeconds")
        if isinstance(stamp, bool) or not isinstance(stamp, int | float):
            # A report without a time is never taken for one of this moment.
            return self._missing(Quality.SUSPECT, "no bootSeconds in the file")
        battery = battery_measurements(json.dumps(found["battery"]), self.name, float(stamp))
        return [*battery, at_time(self._metered(found.get("wifi")), float(stamp))]

    def _metered(self, wifi: object) -> Measurement:
        """Without Wi-Fi the link is the phone's own, which costs; Android takes Wi-Fi for free as well."""
        if not isinstance(wifi, str) or not wifi:
            return missing(METERED, "flag", self.name, Quality.UNSUPPORTED, "no state of the Wi-Fi")
        return Measurement(METERED, float(wifi != CONNECTED), "flag", self.name, detail=wifi)

    def _missing(self, quality: Quality, detail: str) -> list[Measurement]:
        units = {"power.on_battery": "flag", "power.charge": "percent", "battery.temperature": "celsius"}
        return [missing(name, unit, self.name, quality, detail) for name, unit in units.items()]

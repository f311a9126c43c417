"""macOS: power source and charge from `pmset -g batt`, cable and heat of the battery from `ioreg`.

The power source is the first line of pmset; the state of a row may say "AC attached; not charging", whose
semicolon shifts naive columns.  A charge limiter can make a plugged Mac draw from its battery, so the cable
counts as well.
"""

from __future__ import annotations

import plistlib
import re
from typing import Any
from xml.parsers.expat import ExpatError

from journeyman.adapters.sensors.access import Run, plausible
from journeyman.model.readings import Measurement, Quality, missing

DEADLINE_SECONDS = 2.0
SOURCE = re.compile(r"^Now drawing from '([^']+)'", re.MULTILINE)
ROW = re.compile(r"^ -(?P<name>.+?)(?: \(id=\d+\))?\t(?P<percent>\d+)%;(?P<state>.*)$", re.MULTILINE)
UNSIGNED_64 = 1 << 64


class MacBattery:
    """Battery and UPS of a Mac; a desktop has neither."""

    name = "mac_battery"
    period_seconds = 15.0

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._run(["pmset", "-g", "batt"], DEADLINE_SECONDS)
        if text.value is None:
            return [missing("power.on_battery", "flag", "pmset", text.quality, text.detail)]
        source = SOURCE.search(text.value)
        if source is None:
            return [missing("power.on_battery", "flag", "pmset", Quality.ERROR, "no power source")]
        rows = list(ROW.finditer(text.value))
        internal = next((row for row in rows if "InternalBattery" in row["name"]), None)
        ups = Measurement("power.ups_on_battery", float(source[1] == "UPS Power"), "flag", "pmset")
        if internal is None:
            return [ups, missing("power.on_battery", "flag", "pmset", Quality.UNSUPPORTED, "no battery")]
        details = self._details()
        return [
            ups,
            self._on_battery(source[1], details),
            plausible("power.charge", float(internal["percent"]), "percent", "pmset", low=0, high=100),
            *_battery_heat(details),
        ]

    def _details(self) -> dict[str, Any]:
        text = self._run(["ioreg", "-r", "-n", "AppleSmartBattery", "-a"], DEADLINE_SECONDS)
        try:
            found = plistlib.loads((text.value or "").encode())
        except (ValueError, ExpatError, plistlib.InvalidFileException):
            return {}
        first = found[0] if isinstance(found, list) and found else {}
        return first if isinstance(first, dict) else {}

    def _on_battery(self, source: str, details: dict[str, Any]) -> Measurement:
        """On battery if it gives power and no cable is in; with a cable, only while it really drains."""
        drawing = source == "Battery Power"
        if drawing and details.get("ExternalConnected") is True:
            milliamperes = signed(details.get("Amperage", 0))
            detail = f"cable in, battery at {milliamperes} mA"
            return Measurement(
                "power.on_battery", float(milliamperes < -DRAIN_MA), "flag", "pmset", detail=detail
            )
        return Measurement("power.on_battery", float(drawing), "flag", "pmset", detail=source)


# A limiter that holds the charge lets a trickle through; a Mac at work takes an ampere or more.
DRAIN_MA = 500


def signed(value: Any) -> int:
    """Ioreg prints a signed current as an unsigned number of 64 bits."""
    number = value if isinstance(value, int) else 0
    return number - UNSIGNED_64 if number >= UNSIGNED_64 // 2 else number


def _battery_heat(details: dict[str, Any]) -> list[Measurement]:
    """The battery's temperature, in hundredths of a degree."""
    raw = details.get("Temperature")
    if not isinstance(raw, int):
        return []
    return [plausible("battery.temperature", raw / 100, "celsius", "ioreg", low=-10, high=80)]

"""What Termux:API says of the battery, as JSON; for the sensor that asks and the one that reads a file.

Format and sentinels: termux-api, BatteryStatusAPI.java.  The sign of the current means nothing across
vendors; `plugged` says whether a cable is in, `status` in which direction it goes.
"""

from __future__ import annotations

import json
from typing import Any

from journeyman.adapters.sensors.access import plausible
from journeyman.model.readings import Measurement, Quality, missing

PLUGGED = {"PLUGGED_AC", "PLUGGED_USB", "PLUGGED_WIRELESS", "PLUGGED_DOCK"}
# Android BatteryManager: what the system itself calls too hot.
OVERHEATED = {"OVERHEAT"}


def battery_measurements(text: str, source: str, boot_seconds: float | None = None) -> list[Measurement]:
    """The measurements of one report.

    Args:
        text: the JSON.
        source: who reported it.
        boot_seconds: when it was made, if the report is not of this moment.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return [missing("power.on_battery", "flag", source, Quality.ERROR, f"{text[:40]!r} is no report")]
    measured = [_on_battery(found, source), _charge(found, source), *_heat(found, source)]
    return [at_time(one, boot_seconds) for one in measured]


def at_time(measurement: Measurement, boot_seconds: float | None) -> Measurement:
    """The measurement as one of that moment; None leaves it one of now."""
    if boot_seconds is None:
        return measurement
    return Measurement(
        measurement.name, measurement.value, measurement.unit, measurement.source, measurement.quality,
        measurement.detail, boot_seconds,
    )  # fmt: skip


def _on_battery(found: dict[str, Any], source: str) -> Measurement:
    plugged = found.get("plugged")
    if plugged in PLUGGED:
        return Measurement("power.on_battery", 0.0, "flag", source, detail=str(plugged))
    if plugged == "UNPLUGGED":
        return Measurement("power.on_battery", 1.0, "flag", source, detail=str(plugged))
    # PLUGGED_-1 is what the app prints when Android told it nothing.
    return missing("power.on_battery", "flag", source, Quality.SUSPECT, f"plugged is {plugged!r}")


def _charge(found: dict[str, Any], source: str) -> Measurement:
    percent = _number(found.get("percentage"))
    if percent is None:
        level, scale = _number(found.get("level")), _number(found.get("scale"))
        percent = level / scale * 100 if level is not None and scale else None
    if percent is None:
        return missing("power.charge", "percent", source, Quality.ERROR, "no percentage")
    return plausible("power.charge", percent, "percent", source, low=0, high=100)


def _heat(found: dict[str, Any], source: str) -> list[Measurement]:
    overheated = Measurement("battery.overheat", float(found.get("health") in OVERHEATED), "flag", source)
    celsius = _number(found.get("temperature"))
    if celsius is None:
        return [missing("battery.temperature", "celsius", source, Quality.ERROR, "none"), overheated]
    # A missing temperature comes as -214748364.8, Java's smallest integer divided by ten.
    return [plausible("battery.temperature", celsius, "celsius", source, low=-10, high=80), overheated]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

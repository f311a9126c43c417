"""Asks the sensors that are due, gives their measurements a time, and remembers the newest of each source.

A sensor that timed out is asked less and less often, up to ten minutes; its readings age meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from journeyman.model.readings import Measurement, Quality, Reading, missing
from journeyman.ports import Sensor

log = structlog.get_logger(__name__)

LONGEST_BACK_OFF_SECONDS = 600.0
STALE_AFTER_PERIODS = 3
# Ticks come a little early or late; a sensor due within this is asked now and not a tick later.
EARLY_SECONDS = 0.5


@dataclass
class _Seat:
    """What is remembered of one sensor."""

    sensor: Sensor
    due: float
    back_off: float = 0.0
    keys: frozenset[str] = frozenset()


class SensorSweep:
    """All sensors of the host.  One thread at a time may use it.

    Args:
        sensors: the sensors.
    """

    def __init__(self, sensors: Sequence[Sensor]) -> None:
        self._seats = [_Seat(sensor, due=float("-inf")) for sensor in sensors]
        self._newest: dict[str, Reading] = {}

    def run(self, *, boot_now: float, wall_now: datetime, tick_seconds: float) -> list[Reading]:
        """Asks who is due and returns the newest reading of every source, blocking.

        Args:
            boot_now: the boot-time clock.
            wall_now: the wall clock.
            tick_seconds: the time until the next call; a reading lives through three of them at least.
        """
        for seat in self._seats:
            if boot_now >= seat.due - EARLY_SECONDS:
                self._ask(seat, boot_now, wall_now, tick_seconds)
        return list(self._newest.values())

    def forget(self) -> None:
        """Makes every sensor due, as after a sleep of the host."""
        for seat in self._seats:
            seat.due, seat.back_off = float("-inf"), 0.0

    def _read(self, seat: _Seat) -> Sequence[Measurement]:
        """What the sensor says.  One that breaks its contract costs its own readings, not the agent."""
        try:
            return seat.sensor.read()
        except Exception:
            log.exception("sensor_failed", sensor=seat.sensor.name)
            return [
                missing(one.name, one.unit, one.source, Quality.ERROR, "the sensor failed")
                for key in sorted(seat.keys)
                if (one := self._newest.get(key)) is not None
            ]

    def _ask(self, seat: _Seat, boot_now: float, wall_now: datetime, tick_seconds: float) -> None:
        measurements = self._read(seat)
        period = max(seat.sensor.period_seconds, tick_seconds)
        timed_out = any(one.quality is Quality.TIMEOUT for one in measurements)
        if timed_out:
            seat.back_off = min(LONGEST_BACK_OFF_SECONDS, max(period, seat.back_off) * 2)
            log.warning("sensor_timed_out", sensor=seat.sensor.name, back_off_seconds=seat.back_off)
        else:
            seat.back_off = 0.0
        seat.due = boot_now + (seat.back_off or seat.sensor.period_seconds)
        readings = [_stamped(one, boot_now, wall_now, STALE_AFTER_PERIODS * period) for one in measurements]
        # What a source no longer says must not linger as its last good word.
        for gone in seat.keys - {reading.key for reading in readings}:
            self._newest.pop(gone, None)
        seat.keys = frozenset(reading.key for reading in readings)
        self._newest.update((reading.key, reading) for reading in readings)


def _stamped(one: Measurement, boot_now: float, wall_now: datetime, stale_after: float) -> Reading:
    return Reading(
        name=one.name,
        value=one.value,
        unit=one.unit,
        source=one.source,
        quality=one.quality,
        observed_at=wall_now,
        boot_seconds=boot_now if one.boot_seconds is None else one.boot_seconds,
        stale_after_seconds=stale_after,
        detail=one.detail,
        over_seconds=one.over_seconds,
    )

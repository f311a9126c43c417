"""How long the user has been idle: HID on macOS, terminals on Linux.  Nothing else is asked.

Logind's hint never clears on headless hosts and X's screensaver sees nothing under Wayland, so a graphical
session without a terminal is unknown, which is neither active nor idle.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from journeyman.adapters.sensors.access import HostFiles, Run
from journeyman.model.readings import Measurement, Quality, missing

DEADLINE_SECONDS = 2.0
HID_IDLE = re.compile(r'"HIDIdleTime"\s*=\s*(\d+)')
NANOSECONDS = 1e9


class MacUser:
    """`user.idle` from `ioreg -c IOHIDSystem`; a headless Mac has none."""

    name = "mac_user"
    period_seconds = 5.0

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._run(["ioreg", "-c", "IOHIDSystem", "-d", "4"], DEADLINE_SECONDS)
        times = [int(found) for found in HID_IDLE.findall(text.value or "")]
        if not times:
            quality = text.quality if text.value is None else Quality.UNSUPPORTED
            return [missing("user.idle", "seconds", "ioreg", quality, "no HIDIdleTime")]
        return [Measurement("user.idle", min(times) / NANOSECONDS, "seconds", "ioreg")]


class TerminalUser:
    """`user.idle` from the access times of pseudo-terminals, which move with each key.

    Args:
        files: the host.
        now: the wall clock, as access times are of it.
    """

    name = "terminal_user"
    period_seconds = 5.0

    def __init__(self, files: HostFiles, now: Callable[[], datetime]) -> None:
        self._files = files
        self._now = now

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        touched = []
        for name in self._files.names("dev/pts"):
            if name.isdigit():
                try:
                    touched.append(self._files.path(f"dev/pts/{name}").stat().st_atime)
                except OSError:
                    continue
        if not touched:
            return [missing("user.idle", "seconds", self.name, Quality.UNSUPPORTED, "no terminal")]
        idle = max(0.0, self._now().timestamp() - max(touched))
        return [Measurement("user.idle", idle, "seconds", self.name)]

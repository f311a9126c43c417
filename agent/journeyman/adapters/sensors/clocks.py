"""Both clocks of the host: one that counts through sleep and one that does not."""

from __future__ import annotations

import ctypes
import sys
import time

from journeyman.core.gates.sleep import Clocks


class HostClocks:
    """Reads CLOCK_BOOTTIME on Linux, mach_continuous_time on macOS, and the wall clock where neither is."""

    def __init__(self) -> None:
        self._mach = _mach_continuous() if sys.platform == "darwin" else None

    def boot(self) -> float:
        """Seconds since some point, sleep included; steps of the wall clock do not move it."""
        if sys.platform != "darwin":
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.time() if self._mach is None else self._mach.seconds()

    def both(self) -> Clocks:
        """Both at one moment."""
        return Clocks(self.boot(), time.monotonic())


class _Timebase(ctypes.Structure):
    """mach/mach_time.h: ticks times numer over denom are nanoseconds."""

    _fields_ = (("numer", ctypes.c_uint32), ("denom", ctypes.c_uint32))


class _MachClock:
    def __init__(self, library: ctypes.CDLL) -> None:
        base = _Timebase()
        library.mach_timebase_info(ctypes.byref(base))
        self._seconds_a_tick: float = base.numer / base.denom / 1e9
        self._ticks = library.mach_continuous_time
        self._ticks.restype = ctypes.c_uint64

    def seconds(self) -> float:
        return float(self._ticks()) * self._seconds_a_tick


def _mach_continuous() -> _MachClock | None:
    try:
        return _MachClock(ctypes.CDLL("/usr/lib/libSystem.B.dylib"))
    except (OSError, AttributeError):
        return None

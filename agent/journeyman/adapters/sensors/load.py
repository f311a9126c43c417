"""The load of the host: /proc/loadavg, or sysinfo(2) where that file is denied or faked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from journeyman.adapters.sensors.access import HostFiles, refused
from journeyman.adapters.sensors.proot import banned_sources
from journeyman.model.readings import Measurement, missing

# linux/sysinfo.h: the kernel's loads are fixed point with 16 bits of fraction.
LOAD_SCALE = 65536.0


class _Sysinfo(ctypes.Structure):
    """linux/sysinfo.h; the padding at its end is generous for every architecture."""

    _fields_ = (
        ("uptime", ctypes.c_long),
        ("loads", ctypes.c_ulong * 3),
        ("totalram", ctypes.c_ulong),
        ("freeram", ctypes.c_ulong),
        ("rest", ctypes.c_char * 256),
    )


def sysinfo_load() -> float:
    """The load of the last minute by sysinfo(2), which no file can fake.

    Raises:
        OSError: the C library has no such call, or it failed.
    """
    info = _Sysinfo()
    try:
        call = ctypes.CDLL(None, use_errno=True).sysinfo
    except AttributeError as error:
        raise OSError("there is no sysinfo(2)") from error
    if call(ctypes.byref(info)) != 0:
        raise OSError(ctypes.get_errno(), "sysinfo(2) failed")
    return float(info.loads[0]) / LOAD_SCALE


class Load:
    """`own.load`: work that runs or waits to run, of everybody; for people, and for the canary's reader."""

    name = "load"
    period_seconds = 15.0

    def __init__(
        self, files: HostFiles, boot: Callable[[], float], by_call: Callable[[], float] = sysinfo_load
    ) -> None:
        self._files = files
        self._boot = boot
        self._by_call = by_call

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        if "loadavg" not in banned_sources(self._files, self._boot):
            words = (self._files.text("proc/loadavg").value or "").split()
            try:
                return [Measurement("own.load", float(words[0]), "count", "loadavg")]
            except (IndexError, ValueError):
                pass
        try:
            return [Measurement("own.load", self._by_call(), "count", "sysinfo")]
        except OSError as error:
            return [missing("own.load", "count", "sysinfo", refused(error).quality, str(error))]

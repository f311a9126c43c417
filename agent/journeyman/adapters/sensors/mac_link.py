"""macOS: whether the interface of the default route costs money, or is in Low Data Mode.

These two flags of the kernel are what NWPath tells apps as isExpensive and isConstrained: a phone's hotspot
is the first, Low Data Mode the second.  Source: SIOCGIFEXPENSIVE and SIOCGIFCONSTRAINED in the headers of
xnu; reading them needs no privilege.
"""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from collections.abc import Callable

from journeyman.adapters.sensors.access import Run, refused
from journeyman.model.readings import Measurement, Quality, missing

NAME, UNIT, SOURCE = "network.metered", "flag", "xnu"
ROUTE = ("/sbin/route", "-n", "get", "default")
DEADLINE_SECONDS = 2.0
INTERFACE = re.compile(r"^\s*interface: (\w{1,15})$", re.MULTILINE)
# struct ifreq: the name in 16 bytes, and a union of 16 that begins with the flag as an int.
REQUEST = struct.Struct("=16si12x")
# _IOWR('i', number, struct ifreq), sys/ioccom.h.
EXPENSIVE, CONSTRAINED = (0xC0000000 | REQUEST.size << 16 | ord("i") << 8 | number for number in (160, 204))


class MacLink:
    """`network.metered`.

    Args:
        run: runs `route`.
        flag: asks the kernel for one flag of an interface; another one in tests.
    """

    name = "mac_link"
    period_seconds = 60.0

    def __init__(self, run: Run, flag: Callable[[int, str], bool] | None = None) -> None:
        self._run = run
        self._flag = flag or kernel_flag

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        text = self._run(ROUTE, DEADLINE_SECONDS)
        if text.value is None:
            return [missing(NAME, UNIT, SOURCE, text.quality, text.detail)]
        found = INTERFACE.search(text.value)
        if found is None:
            return [missing(NAME, UNIT, SOURCE, Quality.ERROR, "no default route")]
        try:
            flags = [name for name, flag in _FLAGS.items() if self._flag(flag, found[1])]
        except OSError as error:
            why = refused(error)
            return [missing(NAME, UNIT, SOURCE, why.quality, why.detail)]
        return [Measurement(NAME, float(bool(flags)), UNIT, SOURCE, detail=", ".join([found[1], *flags]))]


_FLAGS = {"expensive": EXPENSIVE, "constrained": CONSTRAINED}


def kernel_flag(request: int, interface: str) -> bool:
    """One flag of an interface.  Raises OSError: this kernel has no such flag, or no such interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, request, REQUEST.pack(interface.encode(), 0))
    return bool(REQUEST.unpack(answer)[1])

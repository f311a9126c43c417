"""The 20 bytes of `supervise/status`, read directly: `sv` can report an old process as a new one.

Format as in runit's runsv.c: TAI64N (12 bytes, big-endian) of the last change of state, pid (4 bytes,
little-endian), paused, wanted (`u` or `d`), whether TERM was sent, state.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

LENGTH = 20


class RunitState(IntEnum):
    """What runsv does with the service."""

    DOWN = 0
    RUN = 1
    FINISH = 2


@dataclass(frozen=True)
class RunitStatus:
    """One look at a service.

    Attributes:
        stamp: TAI64N of the last change of state, in hex.  It is a name, never a time: clocks step.
        pid: of what runs, 0 for none.
        is_wanted: whether runsv shall keep it running.
        got_term: whether it was sent SIGTERM and has not ended.
        state: what runs.
    """

    stamp: str
    pid: int
    is_wanted: bool
    got_term: bool
    state: RunitState

    @property
    def sign(self) -> str:
        """Different for each start."""
        return f"{self.stamp}/{self.pid}" if self.state is RunitState.RUN else ""


def parse_status(data: bytes) -> RunitStatus:
    """Reads the file.

    Raises:
        ValueError: it is no such file.
    """
    if len(data) != LENGTH or data[19] not in set(RunitState):
        raise ValueError("not the status file of runsv")
    (pid,) = struct.unpack_from("<I", data, 12)
    return RunitStatus(
        stamp=data[:12].hex(),
        pid=pid,
        is_wanted=data[17:18] == b"u",
        got_term=bool(data[18]),
        state=RunitState(data[19]),
    )

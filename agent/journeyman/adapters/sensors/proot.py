"""PRoot: which files of /proc are faked, so that nobody believes them.

proot-distro binds constant texts over files that Android denies (its sysdata.py): load, uptime, stat and
vmstat.  A tracer, the name of the kernel and an uptime that stands still each give it away.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from journeyman.adapters.sensors.access import HostFiles
from journeyman.core.gates.frozen import PROOT_BANNED
from journeyman.model.readings import Measurement

TRACER = re.compile(r"^TracerPid:\s*(\d+)", re.MULTILINE)
# The faked uptime differs from the boot-time clock by more than any rounding.
UPTIME_SLACK_SECONDS = 5.0


def banned_sources(files: HostFiles, boot: Callable[[], float]) -> frozenset[str]:
    """The names below /proc that are not to be believed on this host; empty where nothing is faked.

    Args:
        files: the host.
        boot: the boot-time clock, which a fake file cannot move.
    """
    release = files.text("proc/sys/kernel/osrelease").value or ""
    if "proot" in release.lower() or _uptime_is_fake(files, boot) or _traced_by_proot(files):
        return PROOT_BANNED
    return frozenset()


class FakedFiles:
    """`proot.banned`: how many sources are not believed, for people and for `SensorsDegraded`."""

    name = "faked_files"
    period_seconds = 60.0

    def __init__(self, files: HostFiles, boot: Callable[[], float]) -> None:
        self._files = files
        self._boot = boot

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        banned = sorted(banned_sources(self._files, self._boot))
        return [Measurement("proot.banned", len(banned), "count", self.name, detail=" ".join(banned))]


def _uptime_is_fake(files: HostFiles, boot: Callable[[], float]) -> bool:
    """A true uptime is the boot-time clock itself (proc(5)), so one read is enough."""
    words = (files.text("proc/uptime").value or "").split()
    try:
        uptime = float(words[0])
    except (IndexError, ValueError):
        return False
    return abs(uptime - boot()) > UPTIME_SLACK_SECONDS


def _traced_by_proot(files: HostFiles) -> bool:
    tracer = TRACER.search(files.text("proc/self/status").value or "")
    if tracer is None or tracer[1] == "0":
        return False
    return (files.text(f"proc/{tracer[1]}/comm").value or "").startswith("proot")

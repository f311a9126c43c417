"""How many processes are ours: phones kill those of all apps together above 32."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import HostFiles
from journeyman.model.readings import Measurement, Quality, missing

UID = re.compile(r"^Uid:\s*(\d+)", re.MULTILINE)


class OwnProcesses:
    """`own.processes`: all processes of our user, as shims and workers leave our process tree.

    Args:
        files: the host.
        uid: our user.
    """

    name = "processes"
    period_seconds = 15.0

    def __init__(self, files: HostFiles, uid: int) -> None:
        self._files = files
        self._uid = str(uid)

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        pids = [name for name in self._files.names("proc") if name.isdigit()]
        if not pids:
            return [missing("own.processes", "count", self.name, Quality.DENIED, "no /proc")]
        ours = sum(self._is_ours(pid) for pid in pids)
        return [Measurement("own.processes", ours, "count", self.name)]

    def _is_ours(self, pid: str) -> bool:
        uid = UID.search(self._files.text(f"proc/{pid}/status").value or "")
        return uid is not None and uid[1] == self._uid

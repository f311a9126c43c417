"""Looks at the host when a job begins and when it has ended, for `core/failure.py` to tell why it failed."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

from journeyman.adapters.sensors.access import HostFiles, Run
from journeyman.adapters.sensors.cgroup import ControlGroup
from journeyman.core.failure import Kills, Surroundings, oomd_words, surroundings_of
from journeyman.core.gates.host_class import HostClass
from journeyman.model.readings import Reading
from journeyman_updater.contract.cgroup import UNIT

OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)
JOURNAL = ("journalctl", "--quiet", "--output=cat", "--lines=100", "--unit=systemd-oomd.service")
JOURNAL_SECONDS = 5.0


class HostWitness:
    """Implements `Witness` on Linux and macOS.

    Args:
        files: the host.
        run: runs `journalctl`; where there is none, or our user may not read, nobody has said anything.
        host: its class.
        readings: of the last sweep.
        slept_seconds: all sleep of the host since the agent began.
    """

    def __init__(
        self,
        files: HostFiles,
        run: Run,
        *,
        host: HostClass,
        readings: Callable[[], Sequence[Reading]],
        slept_seconds: Callable[[], float],
    ) -> None:
        self._files = files
        self._group = ControlGroup(files)
        self._run = run
        self._host = host
        self._readings = readings
        self._slept_seconds = slept_seconds

    def surroundings(self) -> Surroundings:
        """See `Witness.surroundings`."""
        return surroundings_of(self._readings(), self._host, self._kills(), self._slept_seconds())

    def oomd(self, since: str) -> str:
        """See `Witness.oomd`."""
        began = datetime.fromisoformat(since).timestamp()
        return oomd_words(self._run([*JOURNAL, f"--since=@{began:.0f}"], JOURNAL_SECONDS).value or "", UNIT)

    def _kills(self) -> Kills:
        # A phone has no control groups, and its /proc/vmstat is faked.
        if self._host.is_phone:
            return Kills()
        found = OOM_KILLS.search(self._files.text("proc/vmstat").value or "")
        events = self._group.events()
        return Kills(int(found[1]) if found else None, events.get("oom_kill"), events.get("oom"))

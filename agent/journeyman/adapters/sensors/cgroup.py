"""The memory limit of our own control group, of version 2 or 1: inside it the host's memory is not ours."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import HostFiles
from journeyman.core.memory_limit import GroupMemory, group_memory
from journeyman.model.readings import Measurement, Quality, missing

EVENT = re.compile(r"^(oom_kill|oom|max)\s+(\d+)", re.MULTILINE)
# Version 1 spells "no limit" as a number near 2^63.
UNLIMITED_BYTES = 1 << 60


class ControlGroup:
    """The tightest limit on the way from our group to the root, and kills in our group."""

    name = "cgroup"
    period_seconds = 5.0

    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._kills: int | None = None

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        groups = [
            group for folder, two in self._chain() if (group := self._group(folder, two=two)) is not None
        ]
        tightest = min(groups, key=_left, default=None)
        if tightest is None or tightest.limit_bytes is None:
            return [missing("memory.available", "bytes", self.name, Quality.UNSUPPORTED, "no limit")]
        return [
            Measurement("memory.total", tightest.limit_bytes, "bytes", self.name),
            Measurement("memory.available", _left(tightest), "bytes", self.name),
            *self._oom_kills(),
        ]

    def _chain(self) -> list[tuple[str, bool]]:
        """The folders from our group up, each with whether it is of version 2."""
        chain = []
        for line in (self._files.text("proc/self/cgroup").value or "").splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            two = controllers == ""
            if not two and "memory" not in controllers.split(","):
                continue
            mount = "sys/fs/cgroup" if two else "sys/fs/cgroup/memory"
            parts = [part for part in path.split("/") if part not in {"", ".."}]
            # In a container the path may be that of the host; folders that are not mounted here tell nothing.
            chain += [("/".join([mount, *parts[:length]]), two) for length in range(len(parts), -1, -1)]
        return chain

    def _group(self, folder: str, *, two: bool) -> GroupMemory | None:
        limit, current = (
            ("memory.max", "memory.current") if two else ("memory.limit_in_bytes", "memory.usage_in_bytes")
        )
        names = (limit, current, "memory.stat")
        group = group_memory(*(self._files.text(f"{folder}/{name}").value or "" for name in names))
        if group is None or group.limit_bytes is None or group.limit_bytes >= UNLIMITED_BYTES:
            return None
        return group

    def _oom_kills(self) -> list[Measurement]:
        """Kills since we began to look; by anyone, as `memory.events` counts them."""
        kills = self.events().get("oom_kill")
        if kills is None:
            return []
        self._kills = kills if self._kills is None else self._kills
        return [Measurement("memory.oom_kills", max(0.0, kills - self._kills), "count", self.name)]

    def events(self) -> dict[str, int]:
        """What the nearest group has counted: `oom_kill`; and `oom` and `max`, but for version 1.

        There a group without a limit counts, too, whom the host has killed, so it does not count for us.
        """
        for folder, two in self._chain():
            if not two and self._group(folder, two=two) is None:
                continue
            text = self._files.text(f"{folder}/{'memory.events' if two else 'memory.oom_control'}").value
            events = {name: int(count) for name, count in EVENT.findall(text or "")}
            if "oom_kill" in events:
                return events
        return {}


def _left(group: GroupMemory) -> int:
    return max(0, (group.limit_bytes or 0) - group.used_bytes)

"""The memory that a Linux host can still give us, from the texts of /proc and of the control groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from journeyman.ports import Memory

KIB = 1024


@dataclass(frozen=True)
class GroupMemory:
    """Limit and use of one control group, in bytes; a limit of None means none."""

    limit_bytes: int | None
    used_bytes: int


def meminfo(text: str) -> Memory:
    """Reads /proc/meminfo.

    MemAvailable is the kernel's own estimate of what can be had without swapping (proc(5)); kernels
    before 3.14 lack it, and there free memory and page cache stand in for it.

    Raises:
        ValueError: MemTotal is missing.
    """
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and fields[0].isdigit():
            values[name] = int(fields[0]) * KIB
    if "MemTotal" not in values:
        raise ValueError("MemTotal is missing")
    available = values.get("MemAvailable", values.get("MemFree", 0) + values.get("Cached", 0))
    return Memory(values["MemTotal"], min(available, values["MemTotal"]))


def limited(host: Memory, groups: Iterable[GroupMemory]) -> Memory:
    """The memory of a process inside control groups: each limit caps it, as does the host itself."""
    total, available = host.total_bytes, host.available_bytes
    for group in groups:
        # Version 1 spells "no limit" as a number near 2^63, which caps nothing.
        if group.limit_bytes is not None and group.limit_bytes < host.total_bytes:
            total = min(total, group.limit_bytes)
            available = min(available, max(0, group.limit_bytes - group.used_bytes))
    return Memory(total, available)


def group_memory(limit: str, current: str, stat: str) -> GroupMemory | None:
    """Reads one group; None if the texts are not of a memory controller.

    Args:
        limit: `memory.max` (version 2) or `memory.limit_in_bytes` (version 1).
        current: `memory.current` or `memory.usage_in_bytes`.
        stat: `memory.stat`; inactive file pages are given back under pressure and count as free, as they
            do for the kubelet's working set.
    """
    limit, current = limit.strip(), current.strip()
    if not current.isdigit() or not (limit == "max" or limit.isdigit()):
        return None
    inactive = {"total_inactive_file": 0, "inactive_file": 0}
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name in inactive and value.isdigit():
            inactive[name] = int(value)
    # Version 1 counts the group itself without "total_", its subtree with it; version 2 has one name.
    reclaimable = inactive["total_inactive_file"] or inactive["inactive_file"]
    return GroupMemory(None if limit == "max" else int(limit), max(0, int(current) - reclaimable))

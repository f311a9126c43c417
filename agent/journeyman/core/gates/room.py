"""What the host has to give, from its readings: after its reserve, and nothing where nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from journeyman.core.gates.admission import Room
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.signals import disk_reserve_bytes
from journeyman.model.readings import Reading


def room(
    readings: Iterable[Reading], marks: Marks, work_directories: Sequence[str], *, cpus: float, slots: int
) -> Room:
    """The room of this moment.

    Args:
        readings: of the last sweep, each judged for its age.
        marks: the settings.
        work_directories: labels of the directories that work writes to.
        cpus: cores of the host.
        slots: how many pieces of work may run at a time.
    """
    values: dict[str, list[float]] = {}
    for reading in readings:
        if reading.known and reading.value is not None:
            values.setdefault(reading.name, []).append(reading.value)
    ram = _least(values, "memory.available")
    ram_left = None if ram is None else max(0.0, ram - marks.memory.reserve_bytes)
    return Room(
        ram_bytes=ram_left,
        disk_bytes=_disk(values, marks, work_directories),
        vram_bytes=_vram(values, ram_left),
        cpus=cpus,
        slots=slots,
        ram_total_bytes=_least(values, "memory.total"),
    )


def is_purgeable_only(free: float, total: float, important_usage: float | None, marks: Marks) -> bool:
    """Whether there is room only in what macOS could purge: enough for small work, not to be relied on."""
    reserve = disk_reserve_bytes(marks.disk, total)
    return free < reserve and important_usage is not None and important_usage >= reserve


def _disk(values: dict[str, list[float]], marks: Marks, work_directories: Sequence[str]) -> float | None:
    rooms = [_disk_of(values, marks, f"disk.{label}") for label in work_directories]
    known = [one for one in rooms if one is not None]
    return min(known) if rooms and len(known) == len(rooms) else None


def _disk_of(values: dict[str, list[float]], marks: Marks, prefix: str) -> float | None:
    free, total = _least(values, f"{prefix}.free"), _least(values, f"{prefix}.total")
    if free is None or total is None:
        return None
    usage = _least(values, f"{prefix}.important_usage")
    if is_purgeable_only(free, total, usage, marks):
        return float(marks.disk.purgeable_need_bytes)
    return max(0.0, free - disk_reserve_bytes(marks.disk, total))


def _vram(values: dict[str, list[float]], ram_left: float | None) -> float | None:
    """Own memory of the largest GPU; shared memory is the host's, so no more than is left of that."""
    own = values.get("gpu.memory_free", [])
    if own:
        return max(own)
    shared = _least(values, "gpu.shared_free")
    return None if shared is None or ram_left is None else min(shared, ram_left)


def _least(values: dict[str, list[float]], name: str) -> float | None:
    return min(values.get(name, []), default=None)

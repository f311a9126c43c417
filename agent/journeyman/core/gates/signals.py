"""Signals that no sensor reports but rules look at: shares, differences and combinations of readings.

A derived signal has the quality of its weakest part, so a missing part is never taken for a good one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from journeyman.core.gates.marks import DiskMarks, Marks
from journeyman.model.readings import Quality, Reading


def with_derived(readings: Iterable[Reading], marks: Marks, boot_now: float) -> tuple[Reading, ...]:
    """The readings, each judged for its age, and all that follows from them."""
    aged = [reading.at(boot_now) for reading in readings]
    by_name: dict[str, list[Reading]] = {}
    for reading in aged:
        by_name.setdefault(reading.name, []).append(reading)
    derived = [
        *_combined(
            by_name, "memory.available", "memory.total", "memory.available_percent", "percent", _share
        ),
        *_combined(by_name, "memory.swap_used", "memory.total", "memory.swap_percent", "percent", _share),
        *_combined(
            by_name, "memory.compressed", "memory.total", "memory.compressor_percent", "percent", _share
        ),
        *_combined(
            by_name, "power.on_battery", "power.charge", "power.charge_on_battery", "percent", _charge
        ),
    ]
    for reading in derived:
        by_name.setdefault(reading.name, []).append(reading)
    for name in ("memory.swap_percent", "memory.compressor_percent"):
        derived += _combined(
            by_name, name, "memory.swap_in_rate", f"{name}_swapping", "percent", _while_swapping
        )
    for name in [name for name in by_name if name.startswith("disk.") and name.endswith(".free")]:
        derived += _disk(by_name, name.removesuffix(".free"), marks.disk)
    return (*aged, *derived)


def disk_reserve_bytes(marks: DiskMarks, total_bytes: float) -> float:
    """What is kept free of a file system: below it the gate closes."""
    share = total_bytes * marks.reserve_percent / 100
    return max(marks.reserve_min_bytes, min(share, marks.reserve_max_bytes))


def disk_exit_bytes(marks: DiskMarks, total_bytes: float) -> float:
    """What must be free for the gate to open."""
    share = total_bytes * marks.open_extra_percent / 100
    extra = max(marks.open_extra_min_bytes, min(share, marks.open_extra_max_bytes))
    return disk_reserve_bytes(marks, total_bytes) + extra


Combine = Callable[[float, float], float | None]


def _share(part: float, whole: float) -> float | None:
    return part / whole * 100 if whole > 0 else None


def _charge(on_battery: float, charge: float) -> float:
    """The charge while it matters; full while the plug is in."""
    return charge if on_battery else 100.0


def _while_swapping(percent: float, pages_per_second: float) -> float:
    """The share counts while pages come back in: then somebody waits for them."""
    return percent if pages_per_second > 0 else 0.0


def _combined(
    by_name: dict[str, list[Reading]], first: str, second: str, name: str, unit: str, combine: Combine
) -> list[Reading]:
    """One reading for each source of `first`, with `second` by the same source, or else by any other."""
    others = by_name.get(second, [])
    pairs = [
        (one, next((other for other in others if other.source == one.source), others[0]))
        for one in by_name.get(first, [])
        if others
    ]
    return [_derive(name, unit, pair, combine) for pair in pairs]


def _derive(name: str, unit: str, parts: Sequence[Reading], combine: Combine) -> Reading:
    oldest = min(parts, key=lambda part: part.boot_seconds)
    weakest = next((part for part in parts if not part.known), None)
    result = replace(oldest, name=name, unit=unit, source=parts[0].source, detail="")
    first, second = (part.value for part in parts)
    value = None if weakest or first is None or second is None else combine(first, second)
    if value is None:
        quality = weakest.quality if weakest else Quality.SUSPECT
        return replace(result, value=None, quality=quality, detail=f"{(weakest or oldest).name} is {quality}")
    return replace(result, value=value, quality=Quality.OK)


def _disk(by_name: dict[str, list[Reading]], prefix: str, marks: DiskMarks) -> list[Reading]:
    limits: dict[str, Callable[[float], float]] = {
        "above_reserve": lambda total: disk_reserve_bytes(marks, total),
        "above_exit": lambda total: disk_exit_bytes(marks, total),
        "above_third": lambda total: disk_reserve_bytes(marks, total) / 3,
    }
    derived: list[Reading] = []
    usage = next((one.value for one in by_name.get(f"{prefix}.important_usage", []) if one.known), None)
    for name, limit in limits.items():
        # What the system would purge keeps the gate open for small work; see `room`.  The lowest mark is
        # for space that is really there.
        combine = _above(limit, 0.0 if name == "above_third" or usage is None else usage)
        derived += _combined(
            by_name, f"{prefix}.free", f"{prefix}.total", f"{prefix}.{name}", "bytes", combine
        )
    if f"{prefix}.unallocated" in by_name:
        derived += _combined(
            by_name,
            f"{prefix}.unallocated",
            f"{prefix}.metadata_used",
            f"{prefix}.metadata_full",
            "flag",
            _stuck,
        )
    return derived


def _above(limit: Callable[[float], float], purgeable: float) -> Combine:
    return lambda free, total: max(free, purgeable) - limit(total)


BTRFS_CHUNK_BYTES = 1 << 30
BTRFS_METADATA_FULL_PERCENT = 80.0


def _stuck(unallocated_bytes: float, metadata_percent: float) -> float:
    """Whether btrfs cannot grow its metadata any more, however much of its data is free."""
    return float(unallocated_bytes < BTRFS_CHUNK_BYTES and metadata_percent > BTRFS_METADATA_FULL_PERCENT)

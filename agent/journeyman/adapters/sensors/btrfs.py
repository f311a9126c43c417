"""btrfs: unallocated space and how full its metadata is, as statvfs says nothing of either.

With nothing unallocated and metadata full, writes fail with ENOSPC at 40 % free.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from journeyman.adapters.sensors.access import HostFiles, number
from journeyman.model.readings import Measurement, Quality, missing

FOLDER = "sys/fs/btrfs"
KINDS = ("data", "metadata", "system")
SECTOR_BYTES = 512
# The fifth field of a line of mountinfo.
MOUNT_POINT = 4
OCTAL = re.compile(r"\\([0-7]{3})")


class Btrfs:
    """For each work directory on btrfs: `disk.<label>.unallocated` and `disk.<label>.metadata_used`.

    Args:
        files: the host.
        directories: absolute paths by label.
    """

    name = "btrfs"
    period_seconds = 20.0

    def __init__(self, files: HostFiles, directories: Mapping[str, str]) -> None:
        self._files = files
        self._directories = dict(directories)

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        mounts = _mounts(self._files.text("proc/self/mountinfo").value or "")
        return [
            one
            for label, path in self._directories.items()
            if (device := _btrfs_device(mounts, path)) is not None
            for one in self._measure(label, device)
        ]

    def _measure(self, label: str, device: str) -> list[Measurement]:
        unallocated, metadata = f"disk.{label}.unallocated", f"disk.{label}.metadata_used"
        folder = self._filesystem(device)
        sizes = None if folder is None else self._sizes(folder)
        if folder is None or sizes is None:
            detail = f"no allocation of {device}"
            return [missing(unallocated, "bytes", self.name, Quality.ERROR, detail),
                    missing(metadata, "percent", self.name, Quality.ERROR, detail)]  # fmt: skip
        free, percent = sizes
        source = f"btrfs/{device}"
        return [
            Measurement(unallocated, free, "bytes", source),
            Measurement(metadata, percent, "percent", source),
        ]

    def _filesystem(self, device: str) -> str | None:
        for uuid in self._files.names(FOLDER):
            if device in self._files.names(f"{FOLDER}/{uuid}/devices"):
                return f"{FOLDER}/{uuid}"
        return None

    def _sizes(self, folder: str) -> tuple[float, float] | None:
        """Unallocated bytes of all devices, and the percent of the allocated metadata that is taken.

        The global reserve lies in the metadata and is the kernel's own: without it writes fail at 74 % used.
        """
        devices = [number(self._files.text(f"{folder}/devices/{name}/size"), SECTOR_BYTES)
                   for name in self._files.names(f"{folder}/devices")]  # fmt: skip
        allocated = [number(self._files.text(f"{folder}/allocation/{kind}/disk_total")) for kind in KINDS]
        total = number(self._files.text(f"{folder}/allocation/metadata/total_bytes"))
        used = number(self._files.text(f"{folder}/allocation/metadata/bytes_used"))
        reserve = number(self._files.text(f"{folder}/allocation/global_rsv_size")) or 0.0
        if None in devices or None in allocated or used is None or not total:
            return None
        room = sum(size or 0.0 for size in devices) - sum(size or 0.0 for size in allocated)
        return max(0.0, room), min(100.0, (used + reserve) / total * 100)


Mount = tuple[str, str, str]  # Mount point, type, device.


def _mounts(mountinfo: str) -> list[Mount]:
    """proc(5): fields up to a lone dash, then type and source; blanks are written in octal."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) > MOUNT_POINT and len(rest) > 1:
            mounts.append((_plain(fields[MOUNT_POINT]), rest[0], _plain(rest[1]).rpartition("/")[2]))
    return mounts


def _plain(text: str) -> str:
    return OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _btrfs_device(mounts: list[Mount], path: str) -> str | None:
    """The device below a path if that is btrfs: the longest mount point counts, and of equals the last."""
    best: Mount | None = None
    for mount in mounts:
        point = mount[0].rstrip("/")
        inside = path == point or path.startswith(point + "/")
        if inside and (best is None or len(point) >= len(best[0].rstrip("/"))):
            best = mount
    return best[2] if best is not None and best[1] == "btrfs" else None

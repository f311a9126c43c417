"""statvfs of each work directory: what we may still write there, never what `du` adds up."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from journeyman.adapters.sensors.access import refused
from journeyman.model.readings import Measurement, Quality, missing

Statvfs = Callable[[str], os.statvfs_result]


class DiskSpace:
    """`disk.<label>.total`, `.free` (without the root's reserve) and `.inodes` in percent.

    Args:
        directories: absolute paths by label; each stands for the file system that it lies on.
        statvfs: `os.statvfs`; another one in tests.
    """

    name = "disk_space"
    period_seconds = 20.0

    def __init__(self, directories: Mapping[str, str], statvfs: Statvfs = os.statvfs) -> None:
        self._directories = dict(directories)
        self._statvfs = statvfs

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        return [one for label, path in self._directories.items() for one in self._measure(label, path)]

    def _measure(self, label: str, path: str) -> list[Measurement]:
        try:
            stat = self._statvfs(path)
        except OSError as error:
            text = refused(error)
            # A work directory that is gone is a fault, not a lack of support.
            quality = Quality.DENIED if text.quality is Quality.DENIED else Quality.ERROR
            return [missing(f"disk.{label}.free", "bytes", self.name, quality, text.detail)]
        total, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
        found = [
            Measurement(f"disk.{label}.total", total, "bytes", self.name),
            Measurement(f"disk.{label}.free", free, "bytes", self.name),
        ]
        if stat.f_files:
            percent = stat.f_favail / stat.f_files * 100
            return [*found, Measurement(f"disk.{label}.inodes", percent, "percent", self.name)]
        # btrfs and others make inodes as they need them and report none.
        return [*found, missing(f"disk.{label}.inodes", "percent", self.name, Quality.UNSUPPORTED)]

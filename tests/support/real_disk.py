"""Runs inside a mount namespace of its own: makes a real file system on a loop device and measures it.

    python real_disk.py compressed|metadata|full FOLDER

Prints JSON with what `du` and statvfs said and what our sensors say.  The mount ends with the namespace.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

from journeyman.adapters.sensors.access import HostFiles
from journeyman.adapters.sensors.btrfs import Btrfs
from journeyman.adapters.sensors.disk_space import DiskSpace

MIB = 1 << 20
# This exit code tells the test that this host forbids mounts or lacks the file system.
CANNOT_MOUNT = 77
FULL_PERCENT = 80.0


def made(folder: Path, kind: str, size: int, make: list[str], options: str) -> Path:
    """A new file system of that size, mounted."""
    image, mount = folder / "image", folder / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs", "-t", kind, *make, str(image)], check=True, capture_output=True)
    command = ["mount", "-t", kind, "-o", f"loop,{options}", str(image), str(mount)]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit(CANNOT_MOUNT)
    return mount


def measured(mount: Path) -> dict[str, float | None]:
    """What our sensors say of it."""
    places = {"work": str(mount)}
    found = [*DiskSpace(places).read(), *Btrfs(HostFiles(), places).read()]
    return {one.name: one.value for one in found}


def settled(mount: Path) -> dict[str, float | None]:
    """The same after all is written; a second commit lets btrfs give back what a deletion freed."""
    for _ in range(2):
        subprocess.run(["sync", "-f", str(mount)], check=True)
    return measured(mount)


def compressed(folder: Path) -> dict[str, object]:
    """Deletes what `du` calls 256 MiB from a file system with zstd."""
    mount = made(folder, "btrfs", 1024 * MIB, ["-q"], "compress-force=zstd")
    log = mount / "log"
    log.write_bytes(b"the same line of a log, over and over\n" * (256 * MIB // 38))
    before = settled(mount)
    promised = int(
        subprocess.run(["du", "-sB1", str(log)], check=True, capture_output=True).stdout.split()[0]
    )
    log.unlink()
    return {"promised": promised, "before": before, "after": settled(mount)}


def metadata(folder: Path) -> dict[str, object]:
    """Allocates all space for data, frees half of that, and writes small files until there is no room."""
    mount = made(folder, "btrfs", 1200 * MIB, ["-q", "-m", "single"], "max_inline=3900")
    fresh = settled(mount)
    number = 0
    try:
        while True:
            with (mount / f"data{number}").open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 16 * MIB)
            number += 1
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    # Every other file goes, so that each chunk stays allocated and half of it is free.
    for index in range(0, number, 2):
        (mount / f"data{index}").unlink()
    settled(mount)
    small, warned, refused = b"x" * 3800, None, ""
    try:
        for index in range(200_000):
            (mount / f"small{index}").write_bytes(small)
            if (
                index % 250 == 0
                and warned is None
                and (settled(mount)["disk.work.metadata_used"] or 0) > FULL_PERCENT
            ):
                warned = {"files": index, **measured(mount)}
    except OSError as error:
        refused = errno.errorcode[error.errno or 0]
    return {"fresh": fresh, "warned": warned, "refused": refused, "files": index}


def full(folder: Path) -> dict[str, object]:
    """Fills an ext4 as an ordinary user would: root may go on into its reserve."""
    mount = made(folder, "ext4", 128 * MIB, ["-q", "-m", "20"], "rw")
    fresh = measured(mount)
    free = int(fresh["disk.work.free"] or 0)
    with (mount / "data").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free)
    stat = os.statvfs(mount)
    return {"fresh": fresh, "after": settled(mount), "free_for_root": stat.f_bfree * stat.f_frsize}


if __name__ == "__main__":
    measure = {"compressed": compressed, "metadata": metadata, "full": full}[sys.argv[1]]
    sys.stdout.write(json.dumps(measure(Path(sys.argv[2]))))

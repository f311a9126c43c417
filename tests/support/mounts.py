"""Small file systems with the faults of real ones."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.debian import ensure_debian_package
from tests.support.waiting import eventually


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs at `folder` while the block lasts.

    Args:
        folder: where; it is made.
        options: of mount(8), such as `noexec` or `size=4m`.

    Skips the test where mounting is not permitted.
    """
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root mounts a file system")
    folder.mkdir(parents=True)
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"cannot run here: mounting a tmpfs is not permitted ({made.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def image_mounted(image: Path, folder: Path, options: str) -> Iterator[Path]:
    """The file system in an image, at `folder`, while the block lasts; no mount or loop device outlives it.

    Skips the test where that is not permitted.
    """
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root mounts a file system")
    folder.mkdir(exist_ok=True)
    made = subprocess.run(
        ["mount", "-o", f"loop,{options}", image, folder], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"cannot run here: a loop device cannot be mounted ({made.stderr.strip()})")
    try:
        yield folder
        # A loop device on it goes a moment after its own mount.
        eventually(lambda: subprocess.run(["umount", folder], check=False).returncode == 0)
    except BaseException:
        # Whatever still has a file open there must not keep the mount.
        subprocess.run(["umount", "--lazy", folder], check=False)
        raise


def make_image(image: Path, kind: str, size: int) -> None:
    """An image with a new file system of that kind, `size` bytes long.

    Skips the test where it cannot be made.
    """
    make = ensure_debian_package("btrfs-progs" if kind == "btrfs" else "e2fsprogs", f"mkfs.{kind}")
    with image.open("wb") as file:
        file.truncate(size)
    subprocess.run([make, "-q", image], check=True, capture_output=True)


def remount(folder: Path, options: str) -> None:
    """Changes the options of such a file system, `ro` for example."""
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)

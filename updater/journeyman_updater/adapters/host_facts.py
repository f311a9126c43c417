"""What this host is and has: platform, room on disk, and whether the state root can hold a release at all."""

from __future__ import annotations

import errno
import os
import platform
import pwd
import sys
import tempfile
from pathlib import Path

from journeyman_updater.core.fit import Host, arch_of, check_space
from journeyman_updater.errors import HostError, Reason


def this_host() -> Host:
    """The platform of this process, which a release would share: under Rosetta that is amd64."""
    return Host(sys.platform, arch_of(platform.machine()), (sys.version_info.major, sys.version_info.minor))


def recorded_python() -> str:
    """The interpreter that launchers are to start: that of the host, and not a link to it in a virtual
    environment, which its package manager may pull away.
    """
    return str(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve())


def service_user(run_folder: Path) -> str | None:
    """Who runs the agent, where that is somebody else than us: in a system install we are root and it is not.

    Args:
        run_folder: the folder of the running agent's own files.
    """
    try:
        owner = run_folder.stat().st_uid
        return None if owner == os.geteuid() or os.geteuid() != 0 else pwd.getpwuid(owner).pw_name
    except (FileNotFoundError, KeyError):
        return None


def check_state_root(folder: Path, size_bytes: int) -> None:
    """Refuses a folder that cannot take or run a release of that size, before a byte of it is fetched.

    Args:
        folder: the folder of versions; it exists.
        size_bytes: of the artifact, or of the tree once that is known.

    Raises:
        HostError: NotWritable, NoExec, InsufficientDisk.
    """
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise HostError(
            Reason.NOT_WRITABLE,
            f"{folder} belongs to the user with the id {owner}, and the updater runs as {os.geteuid()}",
            "Run the updater as that user; files of another one would lock it out.",
        )
    status = os.statvfs(folder)
    _check_writable(folder)
    if status.f_flag & getattr(os, "ST_NOEXEC", 0):
        raise HostError(
            Reason.NO_EXEC,
            f"{folder} lies on a file system that forbids execution (noexec)",
            "Mount it without noexec, or move the state root.",
        )
    check_space(
        size_bytes,
        free_bytes=status.f_bavail * status.f_frsize,
        disk_bytes=status.f_blocks * status.f_frsize,
    )


def _check_writable(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise HostError(
                Reason.INSUFFICIENT_DISK, f"{folder} is full", "Free space there, or inodes."
            ) from error
        raise HostError(
            Reason.NOT_WRITABLE,
            f"{folder} cannot be written: {error.strerror}",
            "Mount it writable, or give the updater's user write permission.",
        ) from error

"""Whether a release fits this host: product, platform, Python, disk, order and age.  Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from journeyman_updater.errors import HostError, Reason, ReleaseError, UntrustedError
from journeyman_updater.model.binding import ReleaseBinding

PRODUCT = "journeyman"
_SMALLEST_RESERVE_BYTES = 64 * 1024**2
_RESERVE_DIVISOR = 50  # 2 % of the file system.
_CERTAINLY_PAST = datetime(2026, 1, 1, tzinfo=UTC)
# `uname -m` to the words of Go, which the wire uses.
_ARCHES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Host:
    """What a release has to fit.

    Attributes:
        os: `linux` or `darwin`.
        arch: of the processes that run here, not of the kernel: `amd64`, `arm64`.
        python: the version that a release would run with, (3, 11) for example.
    """

    os: str
    arch: str
    python: tuple[int, int]


def arch_of(machine: str) -> str:
    """The word of the wire for what `uname -m` says; unknown ones are kept as they are."""
    return _ARCHES.get(machine.lower(), machine.lower())


def check_product(product: str) -> None:
    """Raises ReleaseError (WrongProduct) for anything but this product."""
    if product != PRODUCT:
        raise ReleaseError(Reason.WRONG_PRODUCT, f"this is a release of {product!r}, not of {PRODUCT}")


def check_platform(os: str, arch: str, host: Host) -> None:
    """Raises ReleaseError (WrongOS, WrongArch) for a release of another platform."""
    if os != host.os:
        raise ReleaseError(Reason.WRONG_OS, f"the release is for {os}, this host runs {host.os}")
    if arch != host.arch:
        raise ReleaseError(Reason.WRONG_ARCH, f"the release is for {arch}, this host is {host.arch}")


def check_python(lowest: str, highest: str, host: Host) -> None:
    """Judges the range of Pythons, both ends included.

    Args:
        lowest: like `3.11`.
        highest: like `3.14`.
        host: this host.

    Raises:
        ReleaseError: WrongPython.
    """
    if not _version(lowest) <= host.python <= _version(highest):
        here = f"{host.python[0]}.{host.python[1]}"
        raise ReleaseError(
            Reason.WRONG_PYTHON,
            f"the release runs on Python {lowest} to {highest}, this host has {here}",
            f"Install a Python from {lowest} to {highest} on this host.",
        )


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def needed_bytes(size_bytes: int, disk_bytes: int) -> int:
    """How much must be free before a release of that size is fetched or unpacked.

    Args:
        size_bytes: of the artifact, or of the tree once that is known.
        disk_bytes: the size of the file system, of which 2 % stay free.
    """
    return 2 * size_bytes + max(_SMALLEST_RESERVE_BYTES, disk_bytes // _RESERVE_DIVISOR)


def check_space(size_bytes: int, *, free_bytes: int, disk_bytes: int) -> None:
    """Raises HostError (InsufficientDisk) if there is too little room; see `needed_bytes`."""
    needed = needed_bytes(size_bytes, disk_bytes)
    if free_bytes < needed:
        raise HostError(
            Reason.INSUFFICIENT_DISK,
            f"the update needs {needed / 1024**2:.0f} MiB free, there are {free_bytes / 1024**2:.0f}",
            f"Free {(needed - free_bytes) / 1024**2:.0f} MiB on the file system of the state root.",
        )


def check_sequence(binding: ReleaseBinding, *, highest_seen: int) -> None:
    """Stops the replay of an older signed release.  The same sequence again is the same release, or its twin.

    Raises:
        UntrustedError: RollbackRefused.
    """
    if binding.sequence < highest_seen:
        raise UntrustedError(
            Reason.ROLLBACK_REFUSED,
            f"version {binding.version.spelled} is signed with sequence {binding.sequence}, "
            f"and {highest_seen} was accepted before",
            "To go back on purpose, sign that release again with a higher sequence.",
        )


def check_expiry(binding: ReleaseBinding, *, now: datetime) -> None:
    """Refuses a signature that has expired.  This blocks an update and never what runs.

    Args:
        binding: what was signed.
        now: the clock of this host, aware.

    Raises:
        HostError: ClockWrong; the clock stands before this code was written, so it cannot judge.
        UntrustedError: Expired.
    """
    if now < _CERTAINLY_PAST:
        raise HostError(
            Reason.CLOCK_WRONG,
            f"the clock says {now:%Y-%m-%d}, which has certainly passed",
            "Set the clock; the update goes on by itself.",
        )
    if now >= binding.expires:
        raise UntrustedError(
            Reason.EXPIRED,
            f"the signature expired on {binding.expires:%Y-%m-%d}",
            "Sign the release again, or check the clock of this host.",
        )

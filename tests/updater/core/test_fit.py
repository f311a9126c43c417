"""Whether a release fits a host."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from journeyman_updater.core.fit import (
    Host,
    arch_of,
    check_expiry,
    check_platform,
    check_product,
    check_python,
    check_sequence,
    check_space,
    needed_bytes,
)
from journeyman_updater.errors import HostError, Reason, ReleaseError, UntrustedError
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.release import Sha256, VersionId

MIB = 1024**2
HOST = Host("linux", "amd64", (3, 12))
BINDING = ReleaseBinding(
    "journeyman",
    "linux",
    "amd64",
    VersionId("1.2.3"),
    5,
    1000,
    Sha256("a" * 64),
    datetime(2030, 1, 1, tzinfo=UTC),
)


def test_processors_have_one_name_each() -> None:
    """What `uname -m` says becomes the word of the wire; an unknown one stays as it is."""
    assert [arch_of(word) for word in ("x86_64", "AMD64", "aarch64", "arm64", "riscv64")] == [
        "amd64", "amd64", "arm64", "arm64", "riscv64",
    ]  # fmt: skip


def test_the_own_platform_and_product_pass() -> None:
    """What fits is not refused."""
    check_product("journeyman")
    check_platform("linux", "amd64", HOST)


@pytest.mark.parametrize(
    ("os", "arch", "reason"),
    [("darwin", "amd64", Reason.WRONG_OS), ("linux", "arm64", Reason.WRONG_ARCH)],
)
def test_another_platform_is_refused(os: str, arch: str, reason: Reason) -> None:
    """System and processor have a reason each."""
    with pytest.raises(ReleaseError) as refused:
        check_platform(os, arch, HOST)
    assert refused.value.reason is reason


@pytest.mark.parametrize(("lowest", "highest"), [("3.12", "3.12"), ("3.9", "3.14"), ("2.7", "4.0")])
def test_pythons_compare_as_numbers(lowest: str, highest: str) -> None:
    """Both ends belong to the range, and 3.9 comes before 3.12."""
    check_python(lowest, highest, HOST)


@pytest.mark.parametrize(("lowest", "highest"), [("3.13", "3.14"), ("3.9", "3.11")])
def test_another_python_is_refused(lowest: str, highest: str) -> None:
    """A Python outside of the range is refused, and the advice names the range."""
    with pytest.raises(ReleaseError) as refused:
        check_python(lowest, highest, HOST)
    assert refused.value.reason is Reason.WRONG_PYTHON
    assert lowest in refused.value.advice


@pytest.mark.parametrize(
    ("size", "disk", "needed"),
    [(0, 0, 64 * MIB), (10 * MIB, 1024 * MIB, 84 * MIB), (10 * MIB, 10_000 * MIB, 220 * MIB)],
)
def test_room_is_twice_the_size_and_a_reserve(size: int, disk: int, needed: int) -> None:
    """The reserve is 64 MiB or 2 % of the file system, whichever is more; the last byte decides."""
    assert needed_bytes(size, disk) == needed
    check_space(size, free_bytes=needed, disk_bytes=disk)
    with pytest.raises(HostError) as refused:
        check_space(size, free_bytes=needed - 1, disk_bytes=disk)
    assert refused.value.reason is Reason.INSUFFICIENT_DISK


def test_a_lower_sequence_is_a_replay() -> None:
    """The sequence seen before and any later one pass, an earlier one does not."""
    check_sequence(BINDING, highest_seen=5)
    check_sequence(BINDING, highest_seen=0)
    with pytest.raises(UntrustedError) as refused:
        check_sequence(BINDING, highest_seen=6)
    assert refused.value.reason is Reason.ROLLBACK_REFUSED


def test_a_deliberate_downgrade_is_signed_again() -> None:
    """An older version under a higher sequence passes."""
    check_sequence(replace(BINDING, version=VersionId("0.9.0"), sequence=7), highest_seen=6)


@pytest.mark.parametrize("years", [-60, -1])
def test_a_clock_in_the_past_is_wrong(years: int) -> None:
    """A date before this code was written is no date to judge by, and passes by itself."""
    with pytest.raises(HostError) as refused:
        check_expiry(BINDING, now=datetime(2026 + years, 12, 31, tzinfo=UTC))
    assert refused.value.reason is Reason.CLOCK_WRONG


def test_a_clock_ten_years_ahead_only_blocks_the_update() -> None:
    """An expired signature is no evidence against the release, so a wrong clock rejects nothing."""
    check_expiry(BINDING, now=BINDING.expires - timedelta(seconds=1))
    with pytest.raises(UntrustedError) as refused:
        check_expiry(BINDING, now=datetime(2036, 11, 30, tzinfo=UTC))
    assert refused.value.reason is Reason.EXPIRED
    assert not refused.value.rejects

"""Memory as the kernel and the control groups tell it."""

from __future__ import annotations

import pytest

from journeyman.core.memory_limit import GroupMemory, group_memory, limited, meminfo
from journeyman.ports import Memory

GIB = 1024**3
HOST = Memory(16 * GIB, 10 * GIB)


def test_meminfo_gives_total_and_available_in_bytes() -> None:
    """What /proc calls kB are KiB."""
    text = "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB\nHugePages_Total: 0\n"
    assert meminfo(text) == Memory(1000 * 1024, 600 * 1024)


def test_an_old_kernel_is_estimated() -> None:
    """Without MemAvailable, free memory and page cache stand in."""
    assert meminfo("MemTotal: 1000 kB\nMemFree: 10 kB\nCached: 20 kB\n").available_bytes == 30 * 1024


def test_meminfo_without_a_total_is_an_error() -> None:
    """Missing is never zero."""
    with pytest.raises(ValueError, match="MemTotal"):
        meminfo("nothing")


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (GroupMemory(None, 5 * GIB), HOST),
        (GroupMemory(2**63 - 4096, 5 * GIB), HOST),
        (GroupMemory(8 * GIB, 1 * GIB), Memory(8 * GIB, 7 * GIB)),
        (GroupMemory(15 * GIB, 1 * GIB), Memory(15 * GIB, 10 * GIB)),
        (GroupMemory(8 * GIB, 9 * GIB), Memory(8 * GIB, 0)),
    ],
)
def test_a_group_caps_what_the_host_has(group: GroupMemory, expected: Memory) -> None:
    """The tighter one counts, for total and available each."""
    assert limited(HOST, [group]) == expected


def test_the_tightest_of_nested_groups_counts() -> None:
    """A limit of the parent binds the child."""
    groups = [GroupMemory(8 * GIB, 0), GroupMemory(4 * GIB, 1 * GIB)]
    assert limited(HOST, groups) == Memory(4 * GIB, 3 * GIB)


def test_inactive_file_pages_count_as_free() -> None:
    """They are given back under pressure; version 1 names those of the subtree with a prefix."""
    assert group_memory("100\n", "60\n", "anon 1\ninactive_file 20\n") == GroupMemory(100, 40)
    both = "inactive_file 5\ntotal_inactive_file 20\n"
    assert group_memory("100", "60", both) == GroupMemory(100, 40)
    assert group_memory("max", "60", "") == GroupMemory(None, 60)


@pytest.mark.parametrize(("limit", "current"), [("", ""), ("100", ""), ("x", "1")])
def test_texts_of_no_memory_controller_are_none(limit: str, current: str) -> None:
    """A group without the controller limits nothing."""
    assert group_memory(limit, current, "") is None

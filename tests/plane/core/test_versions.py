from __future__ import annotations

import pytest

from journeyman_plane.core.versions import same_version


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        ("1.2.3", "1.2.3", True),
        ("v1.2.3", "1.2.3", True),
        ("V1.2.3", "v1.2.3", True),
        ("1.2.3+build.7", "1.2.3", True),
        (" 1.2.3\n", "1.2.3", True),
        ("1.2.3-rc.1", "1.2.3", False),
        ("1.2.3", "1.2.4", False),
        ("1.2", "1.2.0", False),
        ("very-new", "ery-new", False),
        ("", "1.0.0", False),
    ],
)
def test_versions_are_compared_by_meaning(left: str, right: str, same: bool) -> None:  # noqa: FBT001
    """A leading v and build metadata say nothing; everything else does."""
    assert same_version(left, right) is same
    assert same_version(right, left) is same

"""Versions and digests, and how they become parts of a path."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman_updater.model.release import Slot, VersionId, parse_sha256

SHA = parse_sha256("ab" * 32)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "1.2.3.4", "../1.2.3", "1.2.3/..", "1.2.3\n", "01.2.3", "1.2.3-", "1.2.3-a..b", "1.2.3+",
     "vv1.2.3", "latest", "1.2.3 ", "1.2.3-" + "a" * 200, "1.2.3\0", "\u0661.2.3"],
)  # fmt: skip
def test_what_is_no_version_never_becomes_a_path(text: str) -> None:
    """Anything but a semantic version is refused before it can be joined to a path."""
    with pytest.raises(ValueError, match="not a version"):
        VersionId(text)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("v1.2.3", "1.2.3", True), ("1.2.3+build.7", "1.2.3", True), ("1.2.3-rc.1", "1.2.3", False),
     ("1.2.3-rc.1", "1.2.3-rc.2", False), ("1.2.30", "1.2.3", False)],
)  # fmt: skip
def test_versions_are_compared_in_canonical_form(one: str, other: str, *, same: bool) -> None:
    """The `v` and build metadata do not make another version; a pre-release does."""
    assert VersionId(one).same_as(VersionId(other)) is same


def test_precedence_is_that_of_semantic_versioning() -> None:
    """The example chain of semver 2.0.0, section 11, is in order."""
    chain = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
             "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.10.0"]  # fmt: skip
    for lower, higher in itertools.pairwise(VersionId(text).precedence() for text in chain):
        assert lower < higher


@given(
    st.from_regex(
        r"v?[1-9][0-9]{0,3}\.[0-9]\.[0-9](-[0-9A-Za-z.-]{1,20})?(\+[0-9A-Za-z.-]{1,20})?", fullmatch=True
    )
)
def test_a_folder_is_one_plain_name(text: str) -> None:
    """Whatever passes as a version gives a folder name without separators that does not begin with a dot."""
    try:
        folder = Slot(VersionId(text), SHA).folder
    except ValueError:
        return
    assert "/" not in folder
    assert not folder.startswith(".")
    assert folder.endswith("-abababababab")


@pytest.mark.parametrize("text", ["", "ab" * 31, "zz" * 32, "ab" * 33, "../" + "ab" * 31])
def test_what_is_no_digest_is_refused(text: str) -> None:
    """A SHA-256 is 64 hexadecimal digits."""
    with pytest.raises(ValueError, match="not a SHA-256"):
        parse_sha256(text)

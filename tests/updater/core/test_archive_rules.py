"""The rules for members hold for any name that can be written."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman_updater.core.archive_rules import ArchiveRules, Member, MemberKind, most_bytes, safe_parts
from journeyman_updater.errors import Reason, ReleaseError
from journeyman_updater.ports import UnpackLimits

MIB = 1024**2


@given(st.text(alphabet=st.sampled_from("./\\ab\0\n\u00e9"), max_size=12))
def test_a_path_that_is_admitted_stays_inside(path: str) -> None:
    """Whatever the path, it is refused, or its parts joined below a folder lie below that folder."""
    try:
        parts = safe_parts(path)
    except ReleaseError:
        return
    joined = PurePosixPath("/tree").joinpath(*parts)
    assert joined.is_relative_to("/tree")
    assert ".." not in joined.parts


@pytest.mark.parametrize(
    ("path", "parts"),
    [("a/b", ("a", "b")), ("./a", ("a",)), ("a/", ("a",)), (".", ()), ("./", ()), ("a/./b", ("a", "b"))],
)
def test_harmless_spellings_are_admitted(path: str, parts: tuple[str, ...]) -> None:
    """What stock tar writes for one and the same path is one path."""
    assert safe_parts(path) == parts


@pytest.mark.parametrize("path", ["a" * 256, "/".join(["ab"] * 500), "a//b", "\udcff", "a\x7f\x00"])
def test_names_that_some_file_system_cannot_hold_are_refused(path: str) -> None:
    """Too long, empty in the middle, or no text."""
    with pytest.raises(ReleaseError) as refused:
        safe_parts(path)
    assert refused.value.reason is Reason.UNSAFE_PATH


def test_a_folder_may_be_named_again() -> None:
    """A folder that its files have implied, or that was named before, is no duplicate."""
    rules = ArchiveRules(UnpackLimits())
    for member in (
        Member("a/b", MemberKind.FILE),
        Member("a", MemberKind.FOLDER, mode=0o755),
        Member("a/", MemberKind.FOLDER, mode=0o755),
        Member("a/c", MemberKind.FILE),
    ):
        rules.admit(member)


def test_how_much_may_come_out_depends_on_what_went_in() -> None:
    """Fifty times the artifact, a mebibyte for small ones, and never more than the total."""
    limits = UnpackLimits(total_bytes=100 * MIB)
    assert most_bytes(10, limits) == MIB
    assert most_bytes(MIB, limits) == 50 * MIB
    assert most_bytes(10 * MIB, limits) == 100 * MIB

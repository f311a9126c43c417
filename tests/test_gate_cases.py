"""docs/gate-cases.md is true: no case is missing, and its tests exist."""

from __future__ import annotations

import re

import pytest

from tests.support.case_pages import REPOSITORY, check_named_test, named_tests

TEXT = (REPOSITORY / "docs" / "gate-cases.md").read_text()
NAMED = named_tests(TEXT)
CASES = re.findall(r"^\| (\d+b?)([FS]) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
# Numbers that were never given to a case are all that is missing from 1 to 77.
NEVER_GIVEN = {10, 24, 27, 31, 33, 42, 45, 49, 56, 61, 64, 65, 70}
PLAYED_THROUGH = {5, 6, 16, 18, 19, 20, 21, 22, 23, 26, 46, 51, 60, 62, 63, 67, 72, 73, 77}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    """A test that the page names is a function of that file, and one that is collected."""
    check_named_test(path, name)


def test_each_case_is_there_once_and_has_a_test() -> None:
    """Those with a fixture and those that are played through; none twice, and none without an answer."""
    numbers = [number for number, _, _, _ in CASES]
    given = {str(number) for number in range(1, 78) if number not in NEVER_GIVEN} | {"35b"}
    assert len(numbers) == len(set(numbers))
    assert set(numbers) == given
    assert {int(number) for number, kind, _, _ in CASES if kind == "S"} == PLAYED_THROUGH
    assert [number for number, _, _, answer in CASES if "::test_" not in answer] == []

"""docs/inference-cases.md is true: no case is missing, and its tests exist."""

from __future__ import annotations

import re

import pytest

from tests.support.case_pages import REPOSITORY, check_named_test, named_tests

TEXT = (REPOSITORY / "docs" / "inference-cases.md").read_text()
NAMED = named_tests(TEXT)
REPORTS = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
DEFECTS = re.findall(r"^\| ([A-K]) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
# Those that can be reproduced with a small fixture, and the one about sleep.
REPRODUCIBLE = {1, 2, 3, 4, 7, 9, 10, 12, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 27}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[f"{path}::{name}" for path, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    """A test that the page names is a function of that file, and one that is collected."""
    check_named_test(path, name)


def test_each_case_is_there_once_and_has_a_test() -> None:
    """None twice, none left out, and none without an answer."""
    numbers = [int(number) for number, _, _ in REPORTS]
    assert sorted(numbers) == sorted(REPRODUCIBLE)
    assert [letter for letter, _, _ in DEFECTS] == list("ABCDEFGHIJK")
    assert [which for which, _, answer in REPORTS + DEFECTS if "::test_" not in answer] == []

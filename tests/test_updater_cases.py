"""docs/updater-cases.md is true: its tests exist, and each reason code is brought about."""

from __future__ import annotations

import functools
import re

import pytest

from journeyman_updater.errors import Reason
from tests.support.case_pages import REPOSITORY, check_named_test, named_tests, source_of

TEXT = (REPOSITORY / "docs" / "updater-cases.md").read_text()
NAMED = named_tests(TEXT)
CASES = re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)
CODES = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.+) \|$", TEXT, re.MULTILINE))


@functools.cache
def product() -> str:
    """All of the updater but for the list of its codes."""
    folder = REPOSITORY / "updater"
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*.py")) if path.name != "errors.py")


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    """A test that the page names is a function of that file, and one that is collected."""
    check_named_test(path, name)


def test_each_case_is_there_once_and_has_a_test_or_a_reason() -> None:
    """No case is listed twice, and none without an answer."""
    numbers = [int(number) for number, _, _ in CASES]
    assert len(numbers) == len(set(numbers))
    # Numbers that were never given to a case are all that is missing from 1 to 95.
    never_given = {7, 27, 35, 43, 49, 59, 74, 82, 89, 91}
    assert set(numbers) == set(range(1, 96)) - never_given
    before, _, after = TEXT.partition("## Not ours")
    assert all(
        "::test_" in answer
        for _, _, answer in re.findall(r"^\| (\d+) \| (.+) \| (.+) \|$", before, re.MULTILINE)
    )
    assert "::test_" in after


@pytest.mark.parametrize("reason", list(Reason))
def test_each_code_is_given_and_brought_about_by_a_test(reason: Reason) -> None:
    """A code that nothing gives is no code, and one that no test speaks of may be wrong."""
    assert re.search(rf"\bReason\.{reason.name}\b", product()), f"nothing gives {reason}: remove it"
    assert reason in CODES, f"docs/updater-cases.md does not know {reason}"
    [(path, _)] = named_tests(CODES[reason])
    assert re.search(rf"\bReason\.{reason.name}\b", source_of(path)), f"{path} never speaks of {reason}"


def test_no_code_is_listed_that_does_not_exist() -> None:
    """A code that was removed leaves the page, too."""
    assert set(CODES) == {str(reason) for reason in Reason}

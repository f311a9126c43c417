"""Readings and their ages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.model.readings import LONGEST_DETAIL, Measurement, Quality, missing
from tests.support.gates import reading


def test_a_missing_value_cannot_be_called_ok() -> None:
    """There is no way to write down that nothing is fine."""
    with pytest.raises(ValueError, match="not ok"):
        Measurement("thermal.cpu", None, "celsius", "zone0")


def test_details_are_cut_to_what_a_label_may_hold() -> None:
    """A driver's complaint of a kilobyte does not travel."""
    found = missing("a", "b", "c", Quality.ERROR, "x" * 1000)
    assert len(found.detail) == LONGEST_DETAIL


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_reading_is_known_exactly_within_its_time(age: float, stale_after: float) -> None:
    """Older than its time it is stale, not known, and never turned into a value of now."""
    one = reading("a", 1.0, at=0.0, stale_after=stale_after)
    assert one.at(age).known is (age <= stale_after)
    assert one.at(age).boot_seconds == 0.0


def test_a_reading_from_the_future_is_suspect() -> None:
    """A sidecar with a wrong clock is not believed."""
    assert reading("a", 1.0, at=100.0).at(90.0).quality is Quality.SUSPECT
    assert reading("a", 1.0, at=94.0).at(90.0).known

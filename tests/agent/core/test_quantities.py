"""Amounts as people write them."""

from __future__ import annotations

import pytest

from journeyman.core.quantities import bytes_from, bytes_text, seconds_from


@pytest.mark.parametrize(
    ("text", "amount"),
    [("0", 0), ("12", 12), ("1.5K", 1500), ("2G", 2 * 10**9), ("2Gi", 2**31), ("1Ti", 2**40)],
)
def test_bytes_are_spelled_as_kubernetes_does(text: str, amount: int) -> None:
    """K to T are powers of 1000, Ki to Ti of 1024."""
    assert bytes_from(text) == amount


@pytest.mark.parametrize("text", ["", "G", "-1", "2g", "2GB", "1e9", "2 G"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    """A typo must not reserve something else."""
    with pytest.raises(ValueError, match="no amount of bytes"):
        bytes_from(text)


def test_times_have_a_unit_and_are_some_time() -> None:
    """No time at all is a mistake."""
    assert [seconds_from(text) for text in ("90s", "1.5m", "2h", "1d")] == [90, 90, 7200, 86_400]
    for text in ("0s", "5", "1w", ""):
        with pytest.raises(ValueError, match="no length of time"):
            seconds_from(text)


def test_people_read_three_digits() -> None:
    """The unit is the largest that fits."""
    assert [bytes_text(amount) for amount in (0, 999, 1_234_567, 2e9)] == ["0 B", "999 B", "1.23 MB", "2 GB"]

"""Which model servers are started, by numbers alone."""

from __future__ import annotations

import pytest

from journeyman.core.model_admission import HostRoom, RunningServer, default_fraction, refusal
from journeyman.core.model_allocation import Need, need_of
from journeyman.core.model_memory import MemoryEstimate

GB = 10**9
HOST = HostRoom(total_bytes=16 * GB, available_bytes=14 * GB, kept_bytes=GB)


def need(total: int) -> Need:
    found = need_of(MemoryEstimate(total - GB, GB, 0, 0, 0, 0, 0), None)
    assert found is not None
    return found


def test_a_server_that_fits_is_started() -> None:
    """Alone, and beside another one that is loaded."""
    assert refusal(need(12 * GB), HOST, [], 0.75) is None
    assert refusal(need(6 * GB), HOST, [RunningServer(6 * GB, 6 * GB)], 0.75) is None


def test_two_that_fit_alone_do_not_both_start() -> None:
    """What runs counts, although the host calls its mapped weights available."""
    found = refusal(need(7 * GB), HOST, [RunningServer(6 * GB, 6 * GB)], 0.75)
    assert found is not None
    assert not found.is_final
    assert "needs 7 GB (weights 6 GB, context 1 GB" in found.message
    assert "of the 12 GB for models 6 GB are in use" in found.message


def test_a_server_that_takes_more_than_expected_counts_as_it_is() -> None:
    """The larger of estimate and use counts."""
    assert refusal(need(6 * GB), HOST, [RunningServer(2 * GB, 7 * GB)], 0.75) is not None


def test_what_could_never_fit_is_final() -> None:
    """No waiting helps a model that is larger than all that models may have."""
    found = refusal(need(13 * GB), HOST, [], 0.75)
    assert found is not None
    assert found.is_final
    assert "all models together may have 12 GB here" in found.message


@pytest.mark.parametrize(
    ("host", "running"),
    [
        (HostRoom(16 * GB, 5 * GB, GB), []),
        (HostRoom(16 * GB, 8 * GB, GB, reserved_bytes=3 * GB), []),
        (HostRoom(16 * GB, 8 * GB, GB), [RunningServer(5 * GB, GB)]),
    ],
)
def test_what_is_not_free_now_is_waited_for(host: HostRoom, running: list[RunningServer]) -> None:
    """Other programs, what was granted to others, and a server that is still loading leave no room."""
    found = refusal(need(5 * GB), host, running, 0.75)
    assert found is not None
    assert not found.is_final
    assert "are free" in found.message


def test_small_hosts_keep_a_larger_share() -> None:
    """Two thirds up to 36 GiB, three quarters above."""
    assert (default_fraction(16 * GB), default_fraction(64 * GB)) == (0.67, 0.75)

"""The status file of runsv, byte by byte."""

from __future__ import annotations

import pytest

from journeyman_updater.core.runit_status import RunitState, parse_status

# Of a real runsv: `run: (pid 16473)`, wanted up.
RUNNING = bytes.fromhex("4000000069e8a3c412345678") + (16473).to_bytes(4, "little") + b"\0u\0\1"


def test_a_running_service_is_read() -> None:
    """Stamp, pid, wish and state come out as runsv wrote them."""
    status = parse_status(RUNNING)
    assert (status.pid, status.is_wanted, status.got_term) == (16473, True, False)
    assert status.state is RunitState.RUN
    assert status.sign == "4000000069e8a3c412345678/16473"


@pytest.mark.parametrize("state", [RunitState.DOWN, RunitState.FINISH])
def test_what_does_not_run_has_no_sign(state: RunitState) -> None:
    """The stamp of a stop, or the pid of the finish script, is never taken for a start."""
    assert parse_status(RUNNING[:19] + bytes([state])).sign == ""


def test_another_start_has_another_sign() -> None:
    """A nanosecond, or another pid, makes another sign, in whatever direction the clock went."""
    earlier = bytes.fromhex("4000000069e8a3c412345677")
    other = (16474).to_bytes(4, "little")
    signs = {
        parse_status(data).sign
        for data in (RUNNING, earlier + RUNNING[12:], RUNNING[:12] + other + RUNNING[16:])
    }
    assert len(signs) == 3


@pytest.mark.parametrize("data", [b"", RUNNING[:19], RUNNING + b"\0", RUNNING[:19] + b"\7"])
def test_what_is_no_status_is_refused(data: bytes) -> None:
    """A file of another length, or with an unknown state, says nothing."""
    with pytest.raises(ValueError, match="not the status file"):
        parse_status(data)

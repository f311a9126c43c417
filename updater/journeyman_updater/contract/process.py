"""Which process it is: a pid alone is reused, so boot and raw start time go with it."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from journeyman_updater.contract.process_table import (
    boot_id,
    session_pids_of,
    signal_session_of,
    start_time,
)


@dataclass(frozen=True)
class ProcessIdentity:
    """One process for all time.

    Attributes:
        boot_id: the boot of the host in which it started.
        pid: its process id.
        start_time: its start time as the kernel writes it, uninterpreted (no clock step changes it).
    """

    boot_id: str
    pid: int
    start_time: str

    def is_running(self) -> bool:
        """Whether that very process still runs.  A zombie has ended and counts as gone."""
        return self.boot_id == boot_id() and self.start_time == start_time(self.pid)


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of a running process, or None if there is none with that pid."""
    started = start_time(pid)
    return None if started is None else ProcessIdentity(boot_id(), pid, started)


def kill_session(leader: ProcessIdentity) -> None:
    """Kills (SIGKILL) every process of the session; see `signal_session`."""
    signal_session(leader, signal.SIGKILL)


def signal_session(leader: ProcessIdentity, number: int) -> None:
    """Sends a signal to every process of the session that `leader` leads or led, itself included."""
    signal_session_of(leader.boot_id, leader.pid, leader.start_time, number)


def session_pids(leader: ProcessIdentity) -> list[int]:
    """The processes of the session that `leader` leads or led; none once its pid means another process."""
    return session_pids_of(leader.boot_id, leader.pid, leader.start_time)

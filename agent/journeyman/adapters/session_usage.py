"""What the processes of a session use together."""

from __future__ import annotations

import contextlib

from journeyman.ports import Usage
from journeyman_updater.contract import ProcessIdentity, session_pids


def session_usage(leader: ProcessIdentity) -> Usage:
    """Resident memory (what processes share counts for each), and bytes written where the host tells.

    Args:
        leader: the session's leader, running or gone.
    """
    # Imported here: an agent without lane jobs never needs it.
    import psutil

    ram = written = 0
    for pid in session_pids(leader):
        # It may have ended meanwhile, or belong to another user.
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            ram += process.memory_info().rss
            if hasattr(process, "io_counters"):
                written += process.io_counters().write_bytes
    return Usage(ram, written)

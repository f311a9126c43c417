"""What a host says of its power."""

from __future__ import annotations

from enum import StrEnum


class Going(StrEnum):
    """Why the host is about to be silent."""

    SLEEP = "sleep"
    SHUTDOWN = "shutdown"

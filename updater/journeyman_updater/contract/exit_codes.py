"""Exit codes that a service manager or the guard acts on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The agent's own exit codes; the CLI's are in `journeyman.errors`."""

    STOPPED = 0
    """A clean stop was asked for."""
    RESTART = 75
    """The agent wants to be started again (EX_TEMPFAIL): each manager relaunches on it."""
    BAD_CONFIG = 78
    """A setting is wrong (EX_CONFIG): starting again will not help, nor will a rollback."""

"""macOS: keeps the Mac awake by caffeinate(8), which ends by itself with the process that it waits for."""

from __future__ import annotations

import os
import subprocess

from journeyman.errors import HostError

PROGRAM = "/usr/bin/caffeinate"


class Caffeinate:
    """Implements the port SleepAssertion.

    Args:
        program: the path of caffeinate.
    """

    def __init__(self, program: str = PROGRAM) -> None:
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self) -> None:
        """See the port.  Raises HostError if there is no such program."""
        if self.is_held():
            return
        # -i keeps it from idle sleep alone; the display may go dark.
        command = [self._program, "-i", "-w", str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise HostError(f"{self._program} cannot be started: {error.strerror}") from error

    def release(self) -> None:
        """See the port."""
        if self._process is not None:
            # The kernel takes the assertion back with the process, so there is nothing to tidy up in it.
            self._process.kill()
            self._process.wait()
            self._process = None

    def is_held(self) -> bool:
        """See the port."""
        return self._process is not None and self._process.poll() is None

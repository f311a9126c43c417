"""Runs the tools of service managers, each in a process group of its own that ends with it at the timeout."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping

from journeyman_updater.ports import CommandResult

NOT_FOUND = 127
TIMED_OUT = 124
_ABANDONED_SECONDS = 1.0


class SubprocessCommandRunner:
    """Implements the port CommandRunner.

    Args:
        environment: added to our own; messages are asked for in English, whatever the host speaks.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**os.environ, **(environment or {}), "LC_ALL": "C"}

    def run(self, *command: str, timeout_seconds: float) -> CommandResult:
        try:
            process = subprocess.Popen(
                command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            return CommandResult(NOT_FOUND, stderr=f"{command[0]}: {error.strerror}")
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_seconds)
            except subprocess.TimeoutExpired:
                _kill_group(process)
                return CommandResult(
                    TIMED_OUT, stderr=f"{command[0]} did not end within {timeout_seconds:g} s"
                )
        return CommandResult(process.returncode, stdout, stderr)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    # Whoever has left the group may hold our pipes open: what it still writes is not waited for.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_ABANDONED_SECONDS)

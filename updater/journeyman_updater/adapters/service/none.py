"""No service manager: `parent.py` keeps the agent, and this file speaks to it by signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

from journeyman_updater.contract import ProcessIdentity, boot_id, identity_of
from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.ports import Clock, RestartToken


class ParentServiceManager:
    """Implements the port ServiceManager.

    Args:
        guard_file: `run/guard.json`, written by the parent.
        clock: for the wait until the agent has stopped.
        stop_seconds: how long the agent may take to stop in good order.
        poll_seconds: between two looks.
    """

    def __init__(
        self, guard_file: Path, clock: Clock, *, stop_seconds: float = 30.0, poll_seconds: float = 0.1
    ) -> None:
        self._guard_file = guard_file
        self._clock = clock
        self._stop_seconds = stop_seconds
        self._poll_seconds = poll_seconds

    def running(self) -> ProcessIdentity | None:
        return self._process("child")

    def parent(self) -> ProcessIdentity | None:
        """The parent that keeps the agent, or None."""
        return self._process("parent")

    def token(self) -> RestartToken:
        return RestartToken(self.running())

    def started_since(self, token: RestartToken) -> bool:
        running = self.running()
        return running is not None and running != token.before

    def restart(self) -> None:
        """Stops the agent and lets its parent start the guard at once; see the port.

        Raises:
            RestartError: RestartNotPermitted; no parent runs, or it belongs to somebody else.
        """
        parent = self.parent()
        if parent is None:
            raise RestartError(
                Reason.RESTART_NOT_PERMITTED,
                "no parent keeps the agent here, so nobody would start it again",
                "Start the service, and the update goes on.",
            )
        try:
            # First, so that the parent does not back off when it sees the agent end.
            os.kill(parent.pid, signal.SIGUSR1)
            child = self.running()
            if child is not None:
                self._stop(child)
        except PermissionError as error:
            raise RestartError(
                Reason.RESTART_NOT_PERMITTED,
                "the agent belongs to another user",
                "Run the updater as the user who runs the agent.",
            ) from error

    def _stop(self, child: ProcessIdentity) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGTERM)
        # Counted in polls, so that a clock that stands still cannot keep us here.
        for _ in range(int(self._stop_seconds / self._poll_seconds)):
            if not child.is_running():
                return
            self._clock.wait(self._poll_seconds)
        if child.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)

    def _process(self, name: str) -> ProcessIdentity | None:
        """The process that the parent's file names, if it is still that very one."""
        try:
            found = json.loads(self._guard_file.read_bytes())
            said = ProcessIdentity(boot_id(), int(found[name]), str(found[f"{name}_start"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return said if identity_of(said.pid) == said else None

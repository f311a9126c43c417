"""What the agent tells the guard and the updater of itself: the trial handshake, seen from the agent.

Only an agent that the guard started has something to report; one that was started by hand keeps silent.
"""

from __future__ import annotations

import os
import signal
from collections.abc import MutableMapping
from dataclasses import replace

import structlog

from journeyman_updater.contract import StateRoot, start_time
from journeyman_updater.contract.trial import NONCE_VARIABLE, SHA_VARIABLE, TrialReport

log = structlog.get_logger(__name__)


class ReleaseReport:
    """Writes `run/trial.json`.

    Args:
        root: the state root.
        environ: the environment; the guard's variables are taken out of it, so that no worker can speak
            for the agent.
    """

    def __init__(self, root: StateRoot, environ: MutableMapping[str, str]) -> None:
        self._root = root
        self._nonce = environ.pop(NONCE_VARIABLE, "")
        self._sha = environ.pop(SHA_VARIABLE, "")
        pid = os.getpid()
        self._first = TrialReport(self._nonce, pid, start_time(pid) or "", self._sha)

    @property
    def is_guarded(self) -> bool:
        """Whether a guard started this agent, so that an updater can replace it."""
        return bool(self._nonce)

    def ready(self) -> None:
        """The start is complete: ends the alarm by which the guard would end a start that hangs."""
        signal.alarm(0)
        self._write(self._first)

    def beaten(self, *, ticking: bool, attempted: int, accepted: int, error: str) -> None:
        """A heartbeat was attempted.

        Args:
            ticking: whether each loop has ticked within its own deadline.
            attempted: heartbeats tried since the start.
            accepted: heartbeats that the control plane took since the start.
            error: why the last one failed, as one word; empty if it did not.
        """
        self._write(
            replace(
                self._first,
                loops_ticking=ticking,
                beats_attempted=attempted,
                beats_accepted=accepted,
                beat_error=error,
            )
        )

    def stopped(self) -> None:
        """The agent was asked to stop, and has done so in good order."""
        self._write(replace(self._first, stopped=True))

    def _write(self, report: TrialReport) -> None:
        """Replaces the report.  It need not survive a boot, so nothing is flushed.

        An agent that cannot say that it is well is still well: a full disk is logged, and no more.
        """
        if not self._nonce:
            return
        temporary = self._root.trial_file.with_suffix(".tmp")
        try:
            temporary.write_bytes(report.to_json())
            temporary.replace(self._root.trial_file)
        except OSError as error:
            log.warning("release_report_not_written", error=str(error))

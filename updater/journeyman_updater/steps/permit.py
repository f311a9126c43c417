"""Whether an update may go on, asked at the three points where it can wait without harm.

A trial that is open is always finished, and a rollback never waits: nothing is asked there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from journeyman_updater.core.postponement import check_gates, check_window
from journeyman_updater.core.repeats import check_pause
from journeyman_updater.errors import PostponedError, Reason, SourceError
from journeyman_updater.model.release import UpdateRequest
from journeyman_updater.steps.base import Tools

_LARGEST_REPORT_BYTES = 1024 * 1024


class Permit:
    """For what a person at this host asks for: nothing is waited for."""

    def start(self) -> None:
        """Before anything is done."""

    def fetch(self) -> None:
        """Before the artifact is brought here; not asked if it is here already."""

    def activate(self) -> None:
        """Before the running agent is disturbed; a transfer may have taken hours."""


class PlanePermit(Permit):
    """For what the control plane asks for.  Each question raises PostponedError for "not now".

    Args:
        tools: the ports.
        request: what was asked for.
        to_local: the rules of the local time zone.
    """

    def __init__(
        self, tools: Tools, request: UpdateRequest, to_local: Callable[[datetime], datetime]
    ) -> None:
        self._tools = tools
        self._request = request
        self._to_local = to_local

    def start(self) -> None:
        """Raises PostponedError: OutsideWindow, or the reason for which it was undone before."""
        tools = self._tools
        document, clock = tools.records.load(), tools.clock
        check_window(document.spec.window, clock.now(), self._to_local)
        if undone := document.status.undone_of(self._request.sha256):
            check_pause(undone, clock.boot_id(), clock.monotonic_ns(), pause_seconds=tools.limits.retry_pause)

    def fetch(self) -> None:
        """Raises PostponedError (GateClosed)."""
        tools = self._tools
        check_gates(self._gates(), tools.clock.now(), longest_age_seconds=tools.limits.gates_age)

    def activate(self) -> None:
        """Raises PostponedError (OutsideWindow, Superseded), or RequestError for a malformed one."""
        self.start()
        try:
            wanted = self._tools.plane.wanted()
        except SourceError:
            # What cannot be asked has not been taken back.
            return
        if wanted is None or wanted.sha256 != self._request.sha256:
            now = f"{wanted.version.spelled} is wanted now" if wanted else "it was taken back"
            raise PostponedError(
                Reason.SUPERSEDED, f"{self._request.version.spelled} is not wanted any more: {now}"
            )

    def _gates(self) -> dict[str, Any] | None:
        try:
            data = self._tools.files.read(self._tools.root.gates_file, limit_bytes=_LARGEST_REPORT_BYTES)
            found = json.loads(data)
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

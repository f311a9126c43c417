"""Wakes the updater by a file that whoever starts it looks at; our parent by a signal, and launchd, too.

WatchPaths of launchd may miss a touch, so its job is started explicitly as well.  In a system install only
root may do that, and then a touch that nobody has answered is repeated.  A request that stands costs no
further run: whether it is served, refused or put off, the updater's own timer looks after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Hashable, Mapping

from journeyman_updater.contract import UPDATER_JOB, StateRoot

CALLS = 3
"""How often it is called for one request if nobody seems to hear."""
OUTAGES = 3
"""After how many outages it is called again for one request."""


class UpdaterWaker:
    """Wakes the updater of one state root.

    Args:
        root: whose `run/update-wanted` is touched; `run/update-check` is the answer.
        environ: the environment, in which the property list of the agent names the updater's job.
        launchctl: the path of the tool.
        timeout_seconds: of one call of it.
    """

    def __init__(
        self,
        root: StateRoot,
        environ: Mapping[str, str],
        *,
        launchctl: str = "/bin/launchctl",
        timeout_seconds: float = 10.0,
    ) -> None:
        self._root = root
        self._job = environ.get(UPDATER_JOB, "")
        self._launchctl = launchctl
        self._timeout_seconds = timeout_seconds
        self._asking: threading.Thread | None = None
        self._request: Hashable | None = None
        self._calls = 0
        self._outages = 0

    def heard(self, request: Hashable | None) -> None:
        """Called with what each heartbeat's reply asks for: wakes the updater for a request that is new.

        Args:
            request: anything that differs when what is wanted does; None if nothing is.
        """
        if request != self._request:
            self._request, self._calls, self._outages = request, 0, 0
        if request is None or self._calls >= CALLS or (self._calls and self._is_answered()):
            return
        self._calls += 1
        self.wake()

    def missed(self) -> None:
        """Called when a heartbeat fails: the updater meets the same outage, and is called again after it."""
        # A network that comes and goes for hours is left to the updater's timer.
        if self._calls and self._outages < OUTAGES:
            self._outages += 1
            self._calls = 0

    def wake(self) -> None:
        """Returns at once, and may be called as often as there is a reason: an updater that runs goes on."""
        self._root.wake_up_file.touch()
        self._nudge_parent()
        if self._job and (self._asking is None or not self._asking.is_alive()):
            self._asking = threading.Thread(target=self._kickstart, daemon=True)
            self._asking.start()

    def _nudge_parent(self) -> None:
        """Lets a parent of ours look at the file now; SIGCONT does no harm to one that does not know it."""
        try:
            kept = json.loads(self._root.guard_file.read_bytes())
            if (kept["child"], kept["parent"]) == (os.getpid(), os.getppid()):
                os.kill(os.getppid(), signal.SIGCONT)
        except (OSError, ValueError, KeyError, TypeError):
            # It looks by itself within a second.
            return

    def _is_answered(self) -> bool:
        """Whether the updater has asked for the request since it was called last."""
        try:
            asked = self._root.check_file.stat().st_mtime_ns
            return asked >= self._root.wake_up_file.stat().st_mtime_ns
        except OSError:
            return False

    def _kickstart(self) -> None:
        # Without -k, which would kill an updater that is at work.  That it worked is for nobody to believe.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                [self._launchctl, "kickstart", self._job],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=self._timeout_seconds,
                check=False,
            )

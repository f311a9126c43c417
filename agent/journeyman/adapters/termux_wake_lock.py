"""PRoot: asks the Termux side to keep the phone awake, by a file that names us and a signal.

`awake` holds our pid and start time, and counts for as long as that very process lives; `wake-lock` says what
came of it; `keeper` names the process that acts on it.  All lie beside the sensor file, see `proot/termux`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from journeyman.errors import HostError
from journeyman_updater.contract import ProcessIdentity, boot_id, identity_of


class TermuxWakeLock:
    """Implements the port SleepAssertion.

    Args:
        folder: that both sides see.
    """

    def __init__(self, folder: Path) -> None:
        self._wish = folder / "awake"
        self._answer = folder / "wake-lock"
        self._keeper = folder / "keeper"

    def hold(self) -> None:
        """See the port.  Raises HostError where there is no such folder."""
        own = identity_of(os.getpid())
        if own is None:
            raise HostError("this guest does not see its own process below /proc")
        text = f"{own.pid} {own.start_time}\n"
        try:
            if self._wish.exists() and self._wish.read_text() == text:
                return
            temporary = self._wish.with_name(".wish")
            temporary.write_text(text)
            temporary.replace(self._wish)
        except OSError as error:
            raise HostError(f"{self._wish} cannot be written: {error.strerror}") from error
        self._tell()

    def release(self) -> None:
        """See the port."""
        with contextlib.suppress(OSError):
            self._wish.unlink()
            self._tell()

    def is_held(self) -> bool:
        """See the port.  What a keeper that has gone has said no longer counts."""
        try:
            return self._answer.read_text().strip() == "held" and self._keeper_runs() is not None
        except OSError:
            return False

    def _tell(self) -> None:
        """Wakes the keeper, which would see it by itself within a minute."""
        keeper = self._keeper_runs()
        if keeper is not None:
            with contextlib.suppress(OSError):
                os.kill(keeper, signal.SIGUSR1)

    def _keeper_runs(self) -> int | None:
        try:
            pid, start = self._keeper.read_text().split()
            said = ProcessIdentity(boot_id(), int(pid), start)
        except (OSError, ValueError):
            return None
        return said.pid if identity_of(said.pid) == said else None

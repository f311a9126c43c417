"""Tells how an update goes: in `update.json`, and on the FleetNode while the agent is silent.

News are a courtesy.  A disk that is full or a control plane that does not answer stops no update.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.contract import StateRoot
from journeyman_updater.contract.progress import SILENT_AFTER_SECONDS, UpdateProgress
from journeyman_updater.model.journal import ASIDE, Record, Step
from journeyman_updater.model.release import Slot
from journeyman_updater.ports import Clock

Condition = tuple[bool, str, str]
# The control plane is asked only while nothing is stopped: no rollback waits for one that hangs.
_NOTHING_IS_STOPPED = {Step.FETCH, Step.STAGE}


class UpdateNews:
    """Takes what is journalled and what is fetched.

    Args:
        root: the state root.
        clock: to judge how long the agent has been silent.
        tell: writes the condition `Updating` of our own FleetNode, or gives up in silence.
    """

    def __init__(self, root: StateRoot, clock: Clock, tell: Callable[[Condition], None]) -> None:
        self._root = root
        self._clock = clock
        self._tell = tell
        self._last = _read(root)
        self._is_told = False

    def noted(self, record: Record) -> None:
        """A step was journalled."""
        if record.step in ASIDE or not record.sha:
            return
        progress = UpdateProgress(
            step=record.step,
            version=record.release,
            sha256=record.sha,
            attempt=1 if record.step == Step.ACTIVATE else record.attempt,
            reason=str(record.detail.get("reason") or ""),
            message=str(record.detail.get("evidence") or ""),
        )
        if record.step == Step.ROLLED_BACK and self._last is not None:
            # Why is in the record before it.
            progress = replace(progress, reason=self._last.reason, message=self._last.message)
        self._say(progress)

    def fetched(self, here: int, total: int | None) -> None:
        """Bytes have come."""
        if self._last is not None and self._last.step == Step.FETCH:
            self._say(replace(self._last, bytes_here=here, bytes_total=total or 0))

    def postponed(self, slot: Slot, reason: str, message: str) -> None:
        """A release that is wanted waits."""
        self._say(UpdateProgress("later", slot.version.spelled, slot.sha256, reason=reason, message=message))

    def refused(self, slot: Slot, reason: str, message: str) -> None:
        """A release that is wanted was refused, be it once more."""
        self._say(
            UpdateProgress(Step.REFUSED, slot.version.spelled, slot.sha256, reason=reason, message=message)
        )

    def checked(self) -> None:
        """The control plane was asked what it wants."""
        with contextlib.suppress(OSError):
            self._root.check_file.touch()

    def ended(self) -> None:
        """The run is over."""
        told = self._last.condition() if self._last is not None else None
        if told is not None and not self._is_told and self._is_agent_silent():
            self._tell(told)

    def _say(self, progress: UpdateProgress) -> None:
        told = progress.condition()
        if told is None:
            return
        before, self._last = self._last, progress
        if before is not None and before.condition() == told:
            return
        self._is_told = False
        with contextlib.suppress(OSError):
            self._write(progress)
        if progress.step in _NOTHING_IS_STOPPED and self._is_agent_silent():
            self._tell(told)
            self._is_told = True

    def _write(self, progress: UpdateProgress) -> None:
        """Replaces the file; it need not survive a boot, so nothing is flushed."""
        temporary = self._root.progress_file.with_name(".update.json.tmp")
        # In a system install the agent is another user.
        RealFileSystem().write(temporary, progress.to_json(), mode=0o644)
        temporary.replace(self._root.progress_file)

    def _is_agent_silent(self) -> bool:
        """Whether no heartbeat was accepted for five minutes, or none in a boot that is older than that."""
        try:
            stamp = self._root.last_beat_file.lstat().st_mtime
        except OSError:
            return self._clock.monotonic_ns() / 1e9 > SILENT_AFTER_SECONDS
        return self._clock.now().timestamp() - stamp > SILENT_AFTER_SECONDS


def _read(root: StateRoot) -> UpdateProgress | None:
    try:
        return UpdateProgress.from_json(root.progress_file.read_bytes())
    except (OSError, ValueError):
        return None

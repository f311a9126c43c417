"""What all steps work with: the ports, the state document, the journal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from journeyman_updater.contract import ProcessIdentity, StateRoot, TrialReport
from journeyman_updater.core.attempts import charged
from journeyman_updater.core.fit import Host
from journeyman_updater.core.health import HealthLimits
from journeyman_updater.model.attempt import Attempt
from journeyman_updater.model.journal import Record, Step
from journeyman_updater.model.lines import seal, unseal
from journeyman_updater.model.release import Slot
from journeyman_updater.model.state import StateDocument, Status
from journeyman_updater.ports import (
    AgentUnit,
    Clock,
    ControlPlane,
    ExecCheck,
    Fetcher,
    FileSystem,
    Leases,
    Progress,
    ServiceManager,
    SignatureVerifier,
    Unpacker,
    UnpackLimits,
)

# What the agent's user writes is small, or it is not what it should be.
REPORT_BYTES, ATTEMPTS_BYTES = 64 * 1024, 1024 * 1024


def replace_durably(files: FileSystem, path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replaces a file so that a power cut leaves the old or the new content, never a part of it."""
    temporary = path.with_name(f".{path.name}.tmp")
    files.write(temporary, data, mode=mode)
    files.fsync(temporary)
    files.rename(temporary, path)
    files.fsync_directory(path.parent)


def _ignore(record: Record) -> None:
    """Nobody looks."""


class Records:
    """The state document and the journal of one state root.

    Args:
        root: where they lie.
        files: through which they are written.
        clock: stamps the journal.
        rotate_bytes: at which size the journal becomes `journal.jsonl.1`.
        noted: is shown each record that is added, and each that is not added as it would say nothing new.
    """

    def __init__(
        self,
        root: StateRoot,
        files: FileSystem,
        clock: Clock,
        *,
        rotate_bytes: int = 1024 * 1024,
        noted: Callable[[Record], None] = _ignore,
    ) -> None:
        self._root = root
        self._files = files
        self._clock = clock
        self._rotate_bytes = rotate_bytes
        self._noted = noted
        # An earlier run may have been killed between creating the journal and flushing its name.
        self._is_name_durable = False
        self._is_flushed = True

    def load(self) -> StateDocument:
        """The state document; an empty one if there is none.

        Raises:
            ValueError: it is damaged.
            OSError: it cannot be read, or is a symbolic link.
        """
        path = self._root.state_file
        try:
            return StateDocument.from_json(self._files.read(path))
        except FileNotFoundError:
            return StateDocument()
        except ValueError as error:
            raise ValueError(f"{path} is damaged, the next run of the updater mends it: {error}") from error

    def save(self, document: StateDocument) -> None:
        """Replaces the state document.  When it returns, no power cut can undo that."""
        # Readable, as the guard runs as the agent's user; nothing in it is secret.
        replace_durably(self._files, self._root.state_file, document.to_json(), mode=0o644)

    def save_status(self, **changes: Any) -> Status:
        """Changes fields of the status and returns it."""
        document = self.load()
        status = replace(document.status, **changes)
        self.save(replace(document, status=status))
        return status

    def append(self, step: Step, slot: Slot | None, **detail: Any) -> None:
        """Adds a record.  When it returns, no power cut can undo that."""
        self.note(step, slot, **detail)
        self.flush()

    def append_once(self, step: Step, slot: Slot, **detail: Any) -> None:
        """As `append`, unless one of the last two records says the same.

        What fails the same way at each run must not push what happened out of the journal.
        """
        news = (step, slot.sha256, detail.get("reason"))
        said = {(item.step, item.sha, item.detail.get("reason")): item for item in self.history()[-2:]}
        if news in said:
            self._noted(said[news])
        else:
            self.note(step, slot, **detail)
        # Also for one that was found here: its writer may have been killed before it flushed it.
        self._is_flushed = False
        self.flush()

    def note(self, step: Step, slot: Slot | None, **detail: Any) -> None:
        """Adds a record that becomes durable with the next one, or with `flush`.

        Args:
            step: what is about to be done, or how it ended.
            slot: the release that it is about; None if it is about none.
            detail: reason codes, tokens, evidence.
        """
        journal = self._root.journal_file
        history = self.history()
        attempt = charged(self.attempts(), slot.nonce) if slot and slot.nonce else 0
        record = Record(
            seq=history[-1].seq + 1 if history else 1,
            boot_id=self._clock.boot_id(),
            mono_ns=self._clock.monotonic_ns(),
            at=self._clock.now().isoformat(timespec="seconds"),
            release=slot.version.spelled if slot else "",
            attempt=attempt,
            sha=slot.sha256 if slot else "",
            step=step,
            detail=detail,
        )
        if (self._files.size(journal) or 0) >= self._rotate_bytes:
            self._files.rename(journal, journal.with_name(journal.name + ".1"))
            # Or a power cut could leave the new name and neither of the old ones.
            self._files.fsync_directory(self._root.path)
            self._is_name_durable = False
        # Readable, as the guard reads it when there is no state document; nothing in it is secret.
        self._files.append(journal, seal(record.to_line()), mode=0o644)
        self._is_flushed = False
        self._noted(record)

    def flush(self) -> None:
        """Makes all records durable; costs nothing if they are."""
        if self._is_flushed:
            return
        self._files.fsync(self._root.journal_file)
        if not self._is_name_durable:
            self._files.fsync_directory(self._root.path)
        self._is_flushed = self._is_name_durable = True

    def history(self) -> list[Record]:
        """All whole records, oldest first."""
        journal = self._root.journal_file
        lines = [*self._lines(journal.with_name(journal.name + ".1")), *self._lines(journal)]
        return [record for line in lines if (record := Record.from_line(line))]

    def attempts(self) -> list[Attempt]:
        """What the guard has written.

        It does so as the agent's user, so that a file that cannot be read, or is none, counts as empty: the
        trial is still judged by all else.
        """
        try:
            data = self._files.read(self._root.attempts_file, limit_bytes=ATTEMPTS_BYTES)
        except OSError:
            return []
        return [attempt for line in unseal(data) if (attempt := Attempt.from_line(line))]

    def report(self) -> TrialReport | None:
        """What the agent says of itself; None if it says nothing that can be read."""
        try:
            data = self._files.read(self._root.trial_file, limit_bytes=REPORT_BYTES)
            return TrialReport.from_json(data)
        except (OSError, ValueError, RecursionError):
            return None

    def _lines(self, path: Path) -> list[dict[str, Any]]:
        try:
            return list(unseal(self._files.read(path)))
        except FileNotFoundError:
            return []


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, and caps.

    Attributes:
        health: those of the trial.
        drain: how long work that cannot be handed over is waited for.
        proof: how long a restarted agent may take to report.
        poll: between two looks.
        gates_age: what the gates say does not count when it is older.
        retry_pause: before a release that was undone by no fault of its own is tried again, see `repeats`.
        unpack: caps on what an archive may grow to.
    """

    health: HealthLimits = field(default_factory=HealthLimits)
    drain: float = 300.0
    proof: float = 45.0
    poll: float = 0.5
    gates_age: float = 120.0
    retry_pause: float = 900.0
    unpack: UnpackLimits = field(default_factory=UnpackLimits)


@dataclass(frozen=True)
class Tools:
    """The ports, for one state root.

    Attributes:
        host: what a release has to fit.
        check_room: raises HostError if that folder cannot hold a release of that many bytes.
        allow_unsigned: whether a release without a signature may pass (a loopback plane, or by request).
        new_nonce: makes a random token.
        progress: is told how the fetch goes.
    """

    root: StateRoot
    files: FileSystem
    clock: Clock
    records: Records
    fetcher: Fetcher
    verifier: SignatureVerifier
    unpacker: Unpacker
    exec_check: ExecCheck
    manager: ServiceManager
    unit: AgentUnit
    plane: ControlPlane
    leases: Leases
    limits: Limits
    host: Host
    check_room: Callable[[Path, int], None]
    allow_unsigned: bool
    new_nonce: Callable[[], str]
    progress: Progress

    def seconds(self) -> float:
        """The monotonic clock, in seconds."""
        return self.clock.monotonic_ns() / 1e9

    def tree(self, slot: Slot) -> Path:
        """Where a release lies."""
        return self.root.versions / slot.folder

    def running_report(self) -> tuple[ProcessIdentity | None, TrialReport | None]:
        """The agent that the service manager runs, and its own report if it is really from that process."""
        running, report = self.manager.running(), self.records.report()
        if (
            running is None
            or report is None
            or (report.pid, report.start) != (running.pid, running.start_time)
        ):
            return running, None
        return running, report

    def forget(self, path: Path) -> None:
        """Removes a file that a power cut may bring back without harm."""
        with contextlib.suppress(FileNotFoundError):
            self.files.unlink(path)

    def ensure_folder(self, path: Path, *, mode: int = 0o700) -> None:
        """Creates a folder of the state root if it is not there, durably."""
        if not self.files.is_directory(path):
            self.files.mkdir(path, mode=mode)
            self.files.fsync_directory(path.parent)

"""Workers as processes under shims: `Workers` on Linux and macOS.

A worker is its folder below the root; there is no other memory.  A process is touched only after its
identity (boot, pid, start time) has been compared, so a reused pid is never signalled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

import journeyman_updater.contract
from journeyman.adapters import process_watch
from journeyman.adapters.session_usage import session_usage
from journeyman.errors import WorkerError
from journeyman.ports import Usage
from journeyman_updater.contract import (
    ProcessIdentity,
    WorkerExit,
    WorkerFolder,
    WorkerRecord,
    WorkerSpec,
    identity_of,
    kill_session,
    signal_session,
    write_durably,
)
from journeyman_updater.contract.cgroup import MOUNT, set_frozen

_log = structlog.get_logger()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
SHIM = "journeyman_updater.shim"
# What `-m` would do, without loading what it needs to find a module; the name follows for `ps` and for us.
_RUN_SHIM = f"import sys; from {SHIM} import main; sys.exit(main(sys.argv[2:]))"
# A shim whose worker is dead reads what is left of its output for two seconds, then writes exit.json.
_SHIM_END_SECONDS = 5.0
_LAST_WORDS_BYTES = 8 * 1024


class PosixWorkers:
    """Starts, finds, watches and ends workers.

    Args:
        root: the folder of all workers, `StateRoot.workers`; made when the first one starts.
        python: the interpreter that runs the shims.
        poll_seconds: how often a process is looked at on hosts that cannot tell of its end.
        cgroups: where version 2 of cgroups is mounted, see `set_frozen`.
    """

    def __init__(
        self,
        root: Path,
        *,
        python: str = sys.executable,
        poll_seconds: float = 1.0,
        cgroups: str = MOUNT,
    ) -> None:
        self._cgroups = cgroups
        self._root = root.absolute()
        self._python = python
        self._poll_seconds = poll_seconds
        self._starting: set[str] = set()

    def start(
        self, worker_id: str, spec: WorkerSpec, files: Mapping[str, bytes] | None = None
    ) -> WorkerRecord:
        """See `Workers.start`.  Takes about a tenth of a second, most of it the shim's interpreter."""
        folder = self._folder(worker_id)
        self._starting.add(worker_id)
        try:
            self._make_folder(folder)
            try:
                self._fill(folder, spec, files or {})
                self._run_shim(folder)
                return _record_in(folder)
            except (OSError, ValueError, WorkerError) as error:
                self._discard(folder)
                if isinstance(error, WorkerError):
                    raise
                raise WorkerError(f"worker {worker_id} could not be started: {error}") from error
        finally:
            self._starting.discard(worker_id)

    def known(self) -> list[WorkerRecord]:
        """See `Workers.known`.  Folders without a readable record go, with whatever runs from them.

        As a rule they are leftovers of a start, and nothing does: a worker waits at a gate until its
        record is durable.
        """
        if not self._root.is_dir():
            return []
        records = []
        for path in self._root.iterdir():
            if path.name in self._starting or not path.is_dir():
                continue
            try:
                records.append(_record_in(WorkerFolder(path)))
            except (FileNotFoundError, NotADirectoryError, ValueError) as error:
                _log.warning("worker_folder_discarded", folder=path.name, reason=str(error))
                self._discard(WorkerFolder(path))
                _end_shims_of(path)
            except OSError as error:
                # Too many open files, a disk that fails: no reason to end anything.
                raise WorkerError(f"the record of worker {path.name} cannot be read: {error}") from error
        return sorted(records, key=lambda record: (record.started_at, record.worker_id))

    def running(self, record: WorkerRecord) -> bool:
        """See `Workers.running`."""
        return record.shim.is_running()

    def exit_of(self, record: WorkerRecord) -> WorkerExit | None:
        """See `Workers.exit_of`."""
        try:
            ended = WorkerExit.from_json(self._folder(record.worker_id).exit.read_bytes())
        except (OSError, ValueError):
            return None
        return ended if ended.nonce == record.nonce else None

    async def wait(self, record: WorkerRecord) -> WorkerExit | None:
        """See `Workers.wait`.  A worker that lost its shim is killed: nobody could tell how it ends."""
        await self._ended(record.shim)
        ended = self.exit_of(record)
        if ended is None:
            kill_session(record.worker)
            await self._ended(record.worker)
        return ended

    async def stop(self, record: WorkerRecord, *, grace_seconds: float) -> WorkerExit | None:
        """See `Workers.stop`."""
        _signal(record.shim, signal.SIGTERM)
        self.signal(record, signal.SIGCONT)
        if not await self._ended_within(record.shim, grace_seconds):
            kill_session(record.worker)
            if not await self._ended_within(record.shim, _SHIM_END_SECONDS):
                _signal(record.shim, signal.SIGKILL)
        return await self.wait(record)

    def read_file(self, record: WorkerRecord, name: str) -> bytes | None:
        """See `Workers.read_file`."""
        try:
            return self.path_of(record, name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise WorkerError(f"{name} of worker {record.worker_id} cannot be read: {error}") from error

    def path_of(self, record: WorkerRecord, name: str) -> Path:
        """See `Workers.path_of`."""
        return self._folder(record.worker_id).files / _plain(name)

    def write_file(self, record: WorkerRecord, name: str, content: bytes) -> None:
        """See `Workers.write_file`."""
        try:
            write_durably(self.path_of(record, name), content)
        except OSError as error:
            raise WorkerError(f"{name} of worker {record.worker_id} cannot be written: {error}") from error

    def last_words(self, record: WorkerRecord) -> str:
        """See `Workers.last_words`."""
        try:
            with self._folder(record.worker_id).stderr.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_WORDS_BYTES))
                return file.read(_LAST_WORDS_BYTES).decode(errors="replace")
        except OSError:
            return ""

    def log(self, record: WorkerRecord) -> str:
        """See `Workers.log`."""
        try:
            return self._folder(record.worker_id).stderr.read_text(errors="replace")
        except OSError:
            return ""

    def signal(self, record: WorkerRecord, number: int) -> None:
        """See `Workers.signal`.  Where a worker has no freezer it is stopped by the signal itself."""
        if number == signal.SIGSTOP and self._set_frozen(record, frozen=True):
            return
        signal_session(record.worker, number)
        if number in {signal.SIGCONT, signal.SIGKILL}:
            # A kill reaches frozen work; its shim, which is to say how it ended, is frozen with it.
            self._set_frozen(record, frozen=False)

    def usage(self, record: WorkerRecord) -> Usage:
        """See `Workers.usage`."""
        return session_usage(record.worker)

    def remove(self, record: WorkerRecord) -> None:
        """See `Workers.remove`."""
        if record.shim.is_running() or record.worker.is_running():
            raise WorkerError(f"worker {record.worker_id} still runs", "Stop it first.")
        self._discard(self._folder(record.worker_id))

    def _set_frozen(self, record: WorkerRecord, *, frozen: bool) -> bool:
        return record.shim.is_running() and set_frozen(
            record.shim.pid, record.worker_id, frozen=frozen, mount=self._cgroups
        )

    async def _ended(self, process: ProcessIdentity) -> None:
        await process_watch.ended(process, poll_seconds=self._poll_seconds)

    async def _ended_within(self, process: ProcessIdentity, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._ended(process), seconds)
        except TimeoutError:
            return False
        return True

    def _folder(self, worker_id: str) -> WorkerFolder:
        return WorkerFolder(self._root / _plain(worker_id))

    def _make_folder(self, folder: WorkerFolder) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.path.mkdir(mode=0o700)
        except FileExistsError as error:
            raise WorkerError(f"worker {folder.path.name} already exists", "Remove it first.") from error
        except OSError as error:
            raise WorkerError(f"no folder for worker {folder.path.name}: {error}") from error

    def _fill(self, folder: WorkerFolder, spec: WorkerSpec, files: Mapping[str, bytes]) -> None:
        folder.files.mkdir(mode=0o700)
        for name, content in files.items():
            write_durably(folder.files / _plain(name), content)
        # Not durably: a power cut ends the worker, and nobody reads the spec again.
        folder.spec.touch(mode=0o600)
        folder.spec.write_bytes(spec.to_json())

    def _run_shim(self, folder: WorkerFolder) -> None:
        # The shim needs our contract and the standard library, so it is spared site-packages.
        packages = Path(journeyman_updater.contract.__file__).parents[2]
        command = [self._python, "-S", "-P", "-c", _RUN_SHIM, SHIM, str(folder.path)]
        done = subprocess.run(
            command,
            cwd=folder.path,
            env={"PYTHONPATH": str(packages), "PATH": os.defpath},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip().splitlines()
            raise WorkerError(
                f"worker {folder.path.name}: {reason[-1] if reason else 'its shim failed'}",
                "Check that the program is installed and may be executed.",
            )

    def _discard(self, folder: WorkerFolder) -> None:
        """Takes a folder away in one step, so that a shim still starting in it finds it gone as a whole."""
        doomed = folder.path.with_name(f".{folder.path.name}.removed")
        shutil.rmtree(doomed, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.replace(folder.path, doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def _record_in(folder: WorkerFolder) -> WorkerRecord:
    record = WorkerRecord.from_json(folder.record.read_bytes())
    if record.worker_id != folder.path.name:
        raise ValueError(f"it is the record of {record.worker_id}")
    return record


def _end_shims_of(path: Path) -> None:
    """Ends the shim of a folder that cannot say who it is, and its worker."""
    # Imported here, as such a folder is rare and every start would wait for it.
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-2:] == [SHIM, str(path)]:
                for worker in filter(None, (identity_of(child.pid) for child in process.children())):
                    kill_session(worker)
                process.kill()


def _plain(name: str) -> str:
    """Returns `name` if it is a plain file name.  Raises WorkerError: it could lead out of the folder."""
    if not _NAME.fullmatch(name):
        raise WorkerError(f"{name!r} is no plain name", "Use letters, digits, '.', '_' and '-'.")
    return name


def _signal(process: ProcessIdentity, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if process.is_running():
            os.kill(process.pid, number)

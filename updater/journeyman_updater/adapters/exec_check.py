"""Asks a staged release who it is, in place and as the service would run it, before anything stops.

A hash proves what was published, not that it runs: a wrong interpreter, a noexec mount or a killed signature
show only here.  Nothing of the environment but a few harmless variables reaches the release.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from journeyman_updater.adapters.host_facts import recorded_python
from journeyman_updater.errors import HostError, Reason, ReleaseError, UpdaterError
from journeyman_updater.model.manifest import ENTRY_POINT
from journeyman_updater.model.release import VersionId
from journeyman_updater.ports import Clock

QUESTION = ("version", "--json")
_LONGEST_ANSWER_BYTES = 64 * 1024
# Another thread's fork may hold the file open for writing for a moment (golang/go#22315).
_BUSY_RETRIES = 10
_BUSY_PAUSE_SECONDS = 0.1
_ABANDONED_SECONDS = 1.0
_EXECUTABLE_FOR_ALL = 0o111


class SubprocessExecCheck:
    """Implements the port ExecCheck.

    Args:
        clock: for the pause between two tries of a busy file.
        deadline_seconds: how long the answer may take, and twice as long when it is asked again.
        user: the service's user, whom the release runs as; None for the updater's own.
        platform: as `sys.platform` names it; a kill means another thing on macOS.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        deadline_seconds: float = 30.0,
        user: str | None = None,
        platform: str = sys.platform,
    ) -> None:
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._user = user
        self._platform = platform

    def run(self, tree: Path, *, product: str, version: VersionId) -> None:
        """Runs the entry point of `tree`; see the port.

        Raises:
            ReleaseError: NotExecutableFormat, ExecCheckFailed, ExecCheckTimeout, CodeSignatureInvalid,
                WrongProduct, VersionMismatch.
            HostError: NoExec; the file system forbids execution.
        """
        compare(self.ask([tree / ENTRY_POINT, *QUESTION], folder=tree), product, version)

    def ask(self, command: Sequence[str | Path], *, folder: Path) -> bytes:
        """What a program of a release says until it ends; it is given a few harmless variables only.

        Args:
            command: the program and its arguments.
            folder: where it runs.

        Raises:
            ReleaseError: as `run`, but for what it says.
            HostError: NoExec; the file system forbids execution.
        """
        answer = self._ask(command, folder, self._deadline_seconds)
        if answer is None:
            # A host that was busy for a moment is no evidence; the second time it is.
            answer = self._ask(command, folder, 2 * self._deadline_seconds)
        if answer is None:
            raise ReleaseError(
                Reason.EXEC_CHECK_TIMEOUT,
                f"the release did not answer within {2 * self._deadline_seconds:.0f} s",
            )
        return answer

    def _ask(self, command: Sequence[str | Path], folder: Path, deadline_seconds: float) -> bytes | None:
        with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as complaint:
            process = self._start(command, folder, answer, complaint)
            try:
                code = process.wait(deadline_seconds)
            except subprocess.TimeoutExpired:
                return None
            finally:
                _kill_group(process)
            if code != 0:
                raise _failed(code, _head(complaint), self._platform)
            return _head(answer)

    def _start(
        self, command: Sequence[str | Path], folder: Path, answer: BinaryIO, complaint: BinaryIO
    ) -> subprocess.Popen[bytes]:
        program = Path(command[0])
        for _ in range(_BUSY_RETRIES):
            try:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=answer,
                    stderr=complaint,
                    cwd=folder,
                    env=self._environment(),
                    start_new_session=True,
                    **self._identity(),
                )
            except OSError as error:
                if error.errno != errno.ETXTBSY:
                    raise _cannot_start(error, program) from error
            self._clock.wait(_BUSY_PAUSE_SECONDS)
        raise HostError(Reason.EXEC_CHECK_FAILED, f"{program} stays busy: somebody holds it open for writing")

    def _identity(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        # As the launcher of the guard has it: a release is asked as it will be started.
        kept["JOURNEYMAN_PYTHON"] = recorded_python()
        return kept if self._user is None else {**kept, "HOME": pwd.getpwnam(self._user).pw_dir}


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Ends whatever the release has started, and abandons what cannot be killed: macOS has such children."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_ABANDONED_SECONDS)


def _head(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read(_LONGEST_ANSWER_BYTES)


def _cannot_start(error: OSError, program: Path) -> UpdaterError:
    if error.errno == errno.ENOEXEC:
        return ReleaseError(
            Reason.NOT_EXECUTABLE_FORMAT, f"the system does not know the format of {program.name}"
        )
    if error.errno == errno.EACCES and _forbids_execution(program):
        return HostError(
            Reason.NO_EXEC,
            f"{program.parent} lies on a file system that forbids execution (noexec)",
            "Mount it without noexec, or move the state root.",
        )
    if error.errno == errno.EACCES and program.stat().st_mode & _EXECUTABLE_FOR_ALL == _EXECUTABLE_FOR_ALL:
        return HostError(
            Reason.NO_EXEC,
            f"the service's user may not reach {program}",
            "Give it permission to search the folders above.",
        )
    return ReleaseError(Reason.EXEC_CHECK_FAILED, f"{program.name} cannot be started: {error.strerror}")


def _forbids_execution(program: Path) -> bool:
    return bool(os.statvfs(program).f_flag & getattr(os, "ST_NOEXEC", 0))


def _failed(code: int, complaint: bytes, platform: str) -> UpdaterError:
    if code == -signal.SIGKILL and platform == "darwin":
        return ReleaseError(Reason.CODE_SIGNATURE_INVALID, "macOS killed the release as it started")
    if code == -signal.SIGKILL:
        # The kernel when memory is short, or Android; a release cannot do that by itself.
        return HostError(Reason.EXEC_CHECK_FAILED, "the release was killed from outside as it started")
    lines = complaint.decode(errors="replace").strip().splitlines()
    last = f": {lines[-1][:300]}" if lines else ""
    return ReleaseError(Reason.EXEC_CHECK_FAILED, f"the release ended with {code} when asked who it is{last}")


def compare(answer: bytes, product: str, version: VersionId) -> None:
    """Judges what a release says of itself.

    Raises:
        ReleaseError: ExecCheckFailed, WrongProduct, VersionMismatch.
    """
    try:
        facts: Any = json.loads(answer)
        found_product, found_version = facts["product"], VersionId(facts["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise ReleaseError(
            Reason.EXEC_CHECK_FAILED, f"the release does not say who it is, but {answer[:80]!r}"
        ) from error
    if found_product != product:
        raise ReleaseError(Reason.WRONG_PRODUCT, f"the release says that it is {found_product!r}")
    if not found_version.same_as(version):
        raise ReleaseError(
            Reason.VERSION_MISMATCH,
            f"the release says that it is {found_version.spelled}, not {version.spelled}",
        )

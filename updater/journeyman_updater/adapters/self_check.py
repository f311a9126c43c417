"""Runs the programs of a new copy of the updater, with a deadline and nothing resting on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from journeyman_updater.adapters.exec_check import QUESTION, SubprocessExecCheck, compare
from journeyman_updater.errors import HostError, Reason, ReleaseError
from journeyman_updater.model.release import VersionId

FIRST_RUN = "--first-run"
"""The option of the updater under which it does all of a run but for what is asked for."""


class SubprocessSelfCheck:
    """Implements the port SelfCheck.

    Args:
        service: runs programs as the service does.
        own: runs them as the updater runs.
    """

    def __init__(self, service: SubprocessExecCheck, own: SubprocessExecCheck) -> None:
        self._service = service
        self._own = own

    def guard(self, launcher: Path, root: Path, *, product: str, version: VersionId) -> None:
        """The guard execs the release, which answers in its place; see the port.

        Raises:
            UpdaterError: as `ExecCheck.run`.
        """
        answer = self._service.ask([launcher, "--root", root, "--", *QUESTION], folder=root)
        compare(answer, product, version)

    def starts(self, command: Sequence[str | Path]) -> None:
        """See the port.

        Raises:
            UpdaterError: as `ExecCheck.run`.
        """
        self._own.ask([*command, "--help"], folder=Path(command[-1]).parent)

    def updater(self, launcher: Path, root: Path) -> None:
        """See the port.

        Raises:
            ReleaseError: ExecCheckFailed, ExecCheckTimeout.
            HostError: for the reason that the updater itself gives.
        """
        answer = self._own.ask([launcher, "--root", root, FIRST_RUN], folder=root)
        try:
            said: dict[str, Any] = json.loads(answer)
            ending, reason, message = said["ending"], said["reason"], said["message"]
        except (ValueError, KeyError, TypeError) as error:
            raise ReleaseError(
                Reason.EXEC_CHECK_FAILED, f"its updater does not tell how its run ended, but {answer[:80]!r}"
            ) from error
        if ending == "later":
            raise HostError(Reason(reason), f"its updater could not run yet: {message}")

"""The files by which each service manager starts the agent, and the question to a release for its own.

The question is asked as the updater's own user, with the verified tree that only this user may write: what
comes back is installed with the updater's rights, so the agent's user must have no hand in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from journeyman_updater.adapters.service import choice
from journeyman_updater.adapters.service.launchd_registration import check_list
from journeyman_updater.core.service_files.launchd import KINDS, are_same
from journeyman_updater.core.service_files.runit import AGENT_SCRIPTS
from journeyman_updater.core.service_files.systemd import AGENT_UNIT
from journeyman_updater.errors import HostError, Reason, ReleaseError
from journeyman_updater.model.manifest import ENTRY_POINT
from journeyman_updater.model.unit import Unit
from journeyman_updater.ports import AgentUnit, Clock

QUESTION = ("update", "unit", "--json", "--state-root")


class Ask(Protocol):
    """Runs a program of a release to its end, see `SubprocessExecCheck.ask`."""

    def __call__(self, command: Sequence[str | Path], *, folder: Path) -> bytes: ...


class InstalledUnit:
    """Implements the port AgentUnit.

    Args:
        paths: where the files lie, by name.
        root: the state root, which the release is told.
        ask: runs it.
        mode: of each file.
        check: raises UpdaterError for what the service manager would not take.
        is_same: whether two contents say the same.
    """

    def __init__(
        self,
        paths: dict[str, Path],
        root: Path,
        ask: Ask,
        *,
        mode: int = 0o644,
        check: Callable[[Unit], None] | None = None,
        is_same: Callable[[bytes, bytes], bool] = bytes.__eq__,
    ) -> None:
        self._mode = mode
        self._paths = paths
        self._root = root
        self._ask = ask
        self._check = check
        self._is_same = is_same

    @property
    def mode(self) -> int:
        return self._mode

    def paths(self) -> dict[str, Path]:
        return self._paths

    def render(self, tree: Path) -> Unit:
        """Asks the entry point of `tree`; see the port.

        Raises:
            HostError: ExecCheckFailed, NoExec.
        """
        try:
            return Unit.from_json(self._ask([tree / ENTRY_POINT, *QUESTION, self._root], folder=tree))
        except (ReleaseError, ValueError) as error:
            # It has said who it is; a setting that it cannot read is no evidence against it.
            raise HostError(
                Reason.EXEC_CHECK_FAILED,
                f"the release does not say by which unit it is to be started: {error}",
                "Run `journeyman update unit`: a wrong setting in config.toml would explain it.",
            ) from error

    def check(self, unit: Unit) -> None:
        """Looks at the folder and at the files; see the port.

        Raises:
            HostError: NotWritable, SelfUpdateUnavailable.
        """
        for folder in {self._paths[name].parent for name in unit.files}:
            if not os.access(folder, os.W_OK):
                raise HostError(
                    Reason.NOT_WRITABLE,
                    f"the release brings another unit, and {folder} cannot be written",
                    "Give the updater's user write permission, or install the unit by hand first.",
                )
        if self._check is not None:
            self._check(unit)

    def is_same(self, one: bytes, other: bytes) -> bool:
        return self._is_same(one, other)


def agent_unit(name: str, root: Path, clock: Clock, ask: Ask, *, service_folder: str = "") -> AgentUnit:
    """The one for a service manager.

    Args:
        name: as in the setting `service`.
        root: the state root.
        clock: for the calls of systemd's tools.
        ask: runs a program of a release.
        service_folder: of runit and launchd, see the setting.
    """
    if name in KINDS:
        path = choice.property_list(name, service_folder)
        return InstalledUnit({path.name: path}, root, ask, check=_check_lists, is_same=are_same)
    if name == "runit":
        folder = choice.definition_of(Path(service_folder))
        return InstalledUnit(
            {script: folder / script for script in AGENT_SCRIPTS}, root, ask, mode=0o755, check=_check_scripts
        )
    if name == "none":
        return InstalledUnit({}, root, ask)
    manager = (choice.systemd_user if name == "systemd-user" else choice.systemd)(clock, stop_seconds=1)

    def verify(unit: Unit) -> None:
        manager.verify({each: content.decode(errors="replace") for each, content in unit.files.items()})

    return InstalledUnit({AGENT_UNIT: manager.unit_folder / AGENT_UNIT}, root, ask, check=verify)


def _check_lists(unit: Unit) -> None:
    for name, content in unit.files.items():
        check_list(content, name)


def _check_scripts(unit: Unit) -> None:
    for name, content in unit.files.items():
        if not content.startswith(b"#!/"):
            raise HostError(
                Reason.SELF_UPDATE_UNAVAILABLE, f"the release's {name} is no script: {content[:80]!r}"
            )

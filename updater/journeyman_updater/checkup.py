"""The part of `journeyman doctor` that looks at programs, files and services; each check is one function.

A check looks and changes nothing.  What of it is wrong has an advice that heals it.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from journeyman_updater.adapters.host_facts import check_state_root
from journeyman_updater.adapters.service.diagnosis import troubles_of
from journeyman_updater.adapters.service.installers import installer_for
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot
from journeyman_updater.errors import UpdaterError
from journeyman_updater.installed import read_made, target_of
from journeyman_updater.run import open_updater

__all__ = ["Check", "Keeper", "keeper_of", "look"]

ROOM_BYTES = 256 * 1024 * 1024
"""A release and its parts need about as much: what an update takes beside the one that runs."""


@dataclass(frozen=True)
class Check:
    """What one check says.

    Attributes:
        name: of the check; it does not change.
        is_well: whether nothing has to be done.
        finding: one line.
        advice: what to do, or an empty string.
    """

    name: str
    is_well: bool
    finding: str
    advice: str = ""


def look(root: StateRoot) -> list[Check]:
    """All checks of this file, each for itself: none keeps another from being made."""
    return [check for each in CHECKS for check in _guarded(each, root)]


@dataclass(frozen=True)
class Keeper:
    """Who keeps the agent of a state root.

    Attributes:
        service: the service manager.
        pid: of the agent that it keeps now; None between two.
    """

    service: str
    pid: int | None


def keeper_of(root: StateRoot) -> Keeper | None:
    """Who keeps the agent; None if nothing is installed, or it cannot be told."""
    try:
        made = read_made(root)
        if made is None:
            return None
        running = installer_for(target_of(root, made), SystemClock()).running()
    except (UpdaterError, OSError, ValueError):
        return None
    return Keeper(made.service, running.pid if running else None)


def service(root: StateRoot) -> Iterator[Check]:
    """Whether the service manager has what was installed, and runs it."""
    made = read_made(root)
    if made is None:
        # `journeyman up`, or an agent that was started by hand, is a node like any other.
        yield Check("service", True, "not installed: `journeyman install` lets an agent start by itself")
        return
    troubles = troubles_of(target_of(root, made), SystemClock())
    yield from (Check("service", False, trouble.finding, trouble.advice) for trouble in troubles)
    if not troubles:
        yield Check("service", True, f"{made.service} keeps the agent, with the files that belong there")


def boot(root: StateRoot) -> Iterator[Check]:
    """When it starts by itself, and why."""
    made = read_made(root)
    if made is None:
        return
    starts = installer_for(target_of(root, made), SystemClock()).starts()
    launcher = shlex.quote(str(root.parent_launcher))
    finding, advice = {
        "boot": (f"it starts at boot, as {made.service} does", ""),
        "login": (
            f"it starts at login and ends with the last one, as {made.service} does",
            "For a start at boot uninstall it, and install it as root with --system.",
        ),
        "runsvdir": (
            f"it starts with the runsvdir that watches {made.folder}, so at a boot if that does",
            "",
        ),
        "termux": ("it starts with Termux, so at a boot if the app Termux:Boot is installed", ""),
    }.get(
        starts,
        (
            "nothing starts it at boot, as no service manager keeps it",
            f"Let whatever runs at a boot here, such as @reboot of cron, run `sh {launcher} &`.",
        ),
    )
    yield Check("boot", True, finding, advice)


def interpreter(root: StateRoot) -> Iterator[Check]:
    """Whether the Python that was recorded is there, and if not, whether another one takes its place."""
    for launcher in (root.guard_launcher, root.updater_launcher):
        if not launcher.exists():
            continue
        recorded, *others = _candidates(launcher.read_text())
        if os.access(recorded, os.X_OK):
            continue
        other = next(filter(None, map(shutil.which, others)), "")
        yield Check(
            "interpreter",
            False,
            f"{recorded}, which {launcher.name} was made for, is gone; {other or 'nothing'} takes its place",
            f"Install that Python again, or link one that fits to {recorded}.",
        )


def ownership(root: StateRoot) -> Iterator[Check]:
    """In an install of a user's own, files of somebody else lock agent and updater out."""
    if not root.path.exists():
        return
    owner = root.path.stat().st_uid
    made = read_made(root)
    if made is not None and made.user:
        return
    foreign = [path for path in _walk(root.path) if path.lstat().st_uid != owner]
    if foreign:
        yield Check(
            "ownership",
            False,
            f"{len(foreign)} files belong to another user than {root.path} does, such as {foreign[0]}",
            f"Run `sudo chown -R {owner} {shlex.quote(str(root.path))}`.",
        )


def disk(root: StateRoot) -> Iterator[Check]:
    """Whether an update would find room, and may run what it writes."""
    if root.versions.is_dir() and root.versions.stat().st_uid == os.geteuid():
        check_state_root(root.versions, ROOM_BYTES)
        yield Check("disk", True, "there is room for an update, and programs may run there")


def updates(root: StateRoot) -> Iterator[Check]:
    """Whether this host updates itself, and why not."""
    if not root.state_file.exists():
        yield Check("updates", True, "off: not installed, so that whoever started the agent updates it")
        return
    document = open_updater(root).document()
    if document.spec.source != "agentrelease":
        yield Check(
            "updates",
            True,
            "off: this host does not follow the AgentReleases of its control plane",
            'For that set updates_source = "agentrelease" in config.toml, and run `journeyman install`.',
        )
    elif document.spec.pin:
        yield Check(
            "updates", True, f"off: pinned to {document.spec.pin}; `journeyman update unpin` ends that"
        )
    else:
        yield Check("updates", True, "on: by the AgentReleases of the control plane")


CHECKS: tuple[Callable[[StateRoot], Iterator[Check]], ...] = (
    service,
    boot,
    interpreter,
    ownership,
    disk,
    updates,
)


def _guarded(check: Callable[[StateRoot], Iterator[Check]], root: StateRoot) -> list[Check]:
    try:
        return list(check(root)) or [Check(check.__name__, True, "nothing found")]
    except UpdaterError as error:
        return [Check(check.__name__, False, f"{error.reason}: {error.message}", error.advice)]
    except (OSError, ValueError) as error:
        return [Check(check.__name__, False, f"cannot be looked at: {error}", "Mend that, and look again.")]


def _candidates(launcher: str) -> list[str]:
    """The interpreters that a launcher tries, in order; see `core/launcher.py`."""
    for line in launcher.splitlines():
        if line.startswith("for python in "):
            return shlex.split(line.removeprefix("for python in ").partition("; do ")[0])
    raise ValueError("a launcher is not ours")


def _walk(folder: Path) -> Iterator[Path]:
    yield folder
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))

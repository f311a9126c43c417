"""Composes an installation: a state root with its first release, kept by a service manager; and its removal.

What was made is noted before it is made, see `installed`, so that an uninstall removes that and nothing else.
Settings of the agent, credentials and the control plane are the agent's; see `journeyman/installation.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman_updater.adapters import agent_user
from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.flock import end_holder, hold_in_time
from journeyman_updater.adapters.service.installers import Installer, Target, installer_for, next_step
from journeyman_updater.adapters.service.survey import managers_here, other_agents
from journeyman_updater.adapters.snapshot import running_files
from journeyman_updater.adapters.state_root import foreign_hands, give_files, ids_of, lay_out
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.bootstrap import bootstrap
from journeyman_updater.contract import StateRoot, write_durably
from journeyman_updater.contract.control_socket import SHARED_FOLDER
from journeyman_updater.contract.leftovers import PATTERN, sweep
from journeyman_updater.core.service_choice import Choice, choose, user_of_agent
from journeyman_updater.errors import HostError, Reason, RequestError, RestartError, UpdaterError
from journeyman_updater.installed import Made, read_made, target_of, write_made
from journeyman_updater.ports import Clock
from journeyman_updater.run import open_updater
from journeyman_updater.settings import Settings

__all__ = [
    "Choice",
    "HostError",
    "Installer",
    "Made",
    "Removed",
    "RestartError",
    "Target",
    "UpdaterError",
    "active_version",
    "add_release",
    "choose",
    "clock",
    "follow",
    "foreign_hands",
    "give_agent_its_files",
    "installer_for",
    "lay_root",
    "managers_here",
    "next_step",
    "others_on",
    "owner_of_agent",
    "read_made",
    "refuse_other_release",
    "remove",
    "running_files",
    "target_of",
    "undo",
    "user_commands",
    "user_of_agent",
    "write_made",
]

KEPT_FOLDERS = ("models", "outbox", "plane")
"""What outlives an uninstall: models are large, endings are still owed, and a plane is another's."""
WORKER_GRACE_SECONDS = 10.0
LOCK_SECONDS = 30.0


@dataclass(frozen=True)
class Removed:
    """What an uninstall did.

    Attributes:
        trial: the release whose trial was cancelled, or an empty string.
        workers: that were ended, by name.
        files: outside the state root, that were removed.
        left: paths that are still there, and other traces, one line each.
    """

    trial: str
    workers: list[str]
    files: list[str]
    left: list[str]


def others_on(target: Target) -> list[str]:
    """The agents of LLMKube that the service manager has."""
    uid = os.getuid()
    return other_agents(target.service, target.launchctl, ("system", f"gui/{uid}", f"user/{uid}"))


def lay_root(target: Target) -> Made:
    """Makes the state root with its folders and owners, and the user of a system install if there is none.

    Raises:
        HostError: there can be no such user.
        OSError: the root cannot be written.
    """
    root = target.root
    names = {path.name for path in root.path.iterdir()} if root.path.is_dir() else set()
    # What a boot may end is nobody's to keep.
    before = tuple(sorted(names - {root.run.name}))
    root.path.mkdir(parents=True, exist_ok=True)
    makes_user = bool(target.user) and not agent_user.exists(target.user)
    made = Made(
        target.service, target.user, makes_user, target.folder, target.launchctl, before, target.shares_socket
    )
    write_made(root, made)
    if makes_user:
        agent_user.make(target.user, root.path)
    lay_out(root, target.user)
    return made


def give_agent_its_files(target: Target) -> None:
    """In a system install, lets the agent's user own what root has written in that user's folders.

    Raises:
        OSError: it cannot be given away.
        LookupError: there is no such user.
    """
    if target.user:
        give_files(target.root, ids_of(target.user))


def owner_of_agent(target: Target) -> tuple[int, int] | None:
    """Uid and gid of the agent's files in a system install; None where they are the caller's.

    Raises:
        LookupError: there is no such user.
    """
    return ids_of(target.user) if target.user else None


def add_release(
    target: Target,
    artifact: Path | None,
    *,
    running: str,
    keys: tuple[str, ...],
    allow_unsigned: bool,
    source: str,
) -> str:
    """Lays down the settings of the updater and the first release; returns its version.

    Args:
        target: where it goes.
        artifact: the release; None for what runs now.
        running: the version of what runs now.
        keys: public keys to pin.
        allow_unsigned: whether a release without a signature may pass.
        source: where requests for updates come from.

    Raises:
        UpdaterError: the release is refused.
        ValueError: `updater.json` cannot be used.
        OSError: the root cannot be written.
    """
    path = target.root.updater_settings
    wanted: dict[str, Any] = {"service": target.service}
    if target.service_folder:
        wanted["service_folder"] = target.service_folder
    if target.service.startswith("launchd"):
        wanted["launchctl"] = target.launchctl
    if allow_unsigned:
        wanted["allow_unsigned"] = True
    Settings.load(path)
    there = json.loads(path.read_bytes()) if path.exists() else {}
    write_durably(path, json.dumps({**there, **wanted}, indent=2).encode(), mode=0o644)
    installed = bootstrap(target.root, artifact, keys=keys, source=source, running=running)
    return installed.slot.version.spelled


def follow(root: StateRoot, *, agentreleases: bool) -> bool:
    """Lets the updater follow the AgentReleases of the control plane, or not; returns whether that is new.

    Raises:
        UpdaterError: an update is at work.
        ValueError: `state.json` or `updater.json` is damaged.
    """
    return root.state_file.exists() and open_updater(root).follow("agentrelease" if agentreleases else "off")


def refuse_other_release(root: StateRoot, artifact: Path) -> None:
    """Lets only that release pass which is active.

    Raises:
        RequestError: BadRequest; it is another one.
    """
    with artifact.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    active = open_updater(root).document().status.active
    if active is not None and active.sha256 != sha256:
        raise RequestError(
            Reason.BAD_REQUEST,
            f"{active.version.spelled} is installed here, and {artifact.name} is another release",
            "Update it with `journeyman update apply`, or leave --artifact out.",
        )


def user_commands(target: Target) -> list[str]:
    """What makes the user of a system install, if there is none, for people."""
    if not target.user or agent_user.exists(target.user):
        return []
    return [shlex.join(agent_user.command_that_makes(target.user, target.root.path))]


def clock() -> Clock:
    """The clock of this host."""
    return SystemClock()


def active_version(root: StateRoot) -> str | None:
    """The version that runs here, or None before the first release.

    Raises:
        ValueError: `state.json` or `updater.json` is damaged.
    """
    if not root.state_file.exists():
        return None
    active = open_updater(root).document().status.active
    return active.version.spelled if active else None


def remove(root: StateRoot, made: Made, *, purge: bool) -> Removed:
    """Stops all of it and removes what was made.

    Args:
        root: the state root.
        made: by whom; see `read_made`.
        purge: whether nothing at all of the state root is kept.

    Raises:
        UpdaterError: the service manager cannot be asked, or does not stop the agent; nothing was deleted.
        OSError: something cannot be deleted.
    """
    target = target_of(root, made)
    installer = installer_for(target, SystemClock())
    files = [str(path) for path in installer.files() if path.exists()]
    installer.uninstall()
    # What an installation that was killed has left beside them; the folders are not ours.
    sweep(left for path in installer.files() for left in path.parent.glob(f".{path.name}{PATTERN}"))
    # Whoever still updates waits for an agent that nobody starts now, and nobody starts another updater.
    end_holder(root.update_lock)
    with hold_in_time(root.update_lock, SystemClock(), LOCK_SECONDS):
        trial = _cancel_trial(root)
        workers = end_workers(root.workers, SystemClock(), grace_seconds=WORKER_GRACE_SECONDS)
        # What says what there is to remove goes last: a run that is cut is simply run again.
        kept = {*(() if purge else made.before), root.installation_file.name}
        _empty(root, kept, worth=() if purge else KEPT_FOLDERS)
    _remove_shared_socket(made)
    user = _remove_user(root, made)
    root.installation_file.unlink()
    with contextlib.suppress(OSError):
        root.path.rmdir()
    left = [str(path) for path in sorted(root.path.iterdir())] if root.path.exists() else []
    return Removed(trial, workers, files, [*left, *user, *_traces(made)])


def undo(target: Target, made: Made | None, is_new: Callable[[Path], bool]) -> None:
    """Takes back an installation that has failed, as far as it came; never raises.

    Args:
        target: where it went.
        made: what it has noted, or None if it did not come so far.
        is_new: whether a folder was made by it.
    """
    root = target.root
    if made is not None:
        with contextlib.suppress(UpdaterError, OSError):
            installer_for(target, SystemClock()).uninstall()
        with contextlib.suppress(OSError):
            end_workers(root.workers, SystemClock(), grace_seconds=WORKER_GRACE_SECONDS)
        with contextlib.suppress(OSError):
            _empty(root, made.before)
        _remove_shared_socket(made)
        if made.made_user:
            agent_user.remove(made.user)
    for folder in (root.path, *root.path.parents):
        if not is_new(folder):
            break
        with contextlib.suppress(OSError):
            folder.rmdir()


def _cancel_trial(root: StateRoot) -> str:
    """Ends an open trial, as the state document may outlive the uninstall; the caller holds the lock."""
    with contextlib.suppress(ValueError, OSError):
        return open_updater(root).cancel_trial()
    return ""


def _remove_user(root: StateRoot, made: Made) -> list[str]:
    """Removes the user that the installation has made, unless files of that user stay; says what is left."""
    if not made.made_user or not agent_user.exists(made.user):
        return []
    uid, _ = ids_of(made.user)
    if any(path.lstat().st_uid == uid for path in root.path.rglob("*")):
        return [f"the user {made.user}, who owns what is left"]
    return [] if agent_user.remove(made.user) else [f"the user {made.user}, who could not be removed"]


def _empty(root: StateRoot, before: Collection[str], *, worth: tuple[str, ...] = ()) -> None:
    """Removes a state root, but for what was there before, and for folders that are worth keeping if full."""
    for path in root.path.iterdir():
        if path.name in before:
            continue
        if path.is_dir() and not path.is_symlink():
            if path.name not in worth or not any(path.iterdir()):
                shutil.rmtree(path)
        else:
            path.unlink()


def _remove_shared_socket(made: Made) -> None:
    """Systemd keeps the folder, on purpose, for workers that hold it open across a restart."""
    if made.shares_socket:
        shutil.rmtree(SHARED_FOLDER, ignore_errors=True)


def _traces(made: Made) -> list[str]:
    """What the managers themselves keep, and nobody else may remove."""
    if made.service.startswith("systemd"):
        scope = "--user-unit" if made.service == "systemd-user" else "--unit"
        return [f"the journal of systemd: journalctl {scope} dev.journeyman.agent"]
    return []

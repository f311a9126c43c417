"""The folders of a state root, and who owns what: the table of processes in a system install.

There the root itself is root's, so that the agent's user can neither add nor replace a name in it; what that
user writes lies in folders of its own.  In an install of a user's own, all is that user's and hidden from
others.
"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from journeyman_updater.contract import StateRoot

READABLE = 0o755
PRIVATE = 0o700
TRAVERSABLE = 0o710
"""Whoever is in the agent's group finds what is readable there by its name, such as what the gates say."""
AGENT_LOG = "agent.log"
_NEVER_A_LINK = os.O_NOFOLLOW | os.O_CLOEXEC


def lay_out(root: StateRoot, user: str = "") -> None:
    """Makes what is missing and mends owners and modes; the content of folders is left alone.

    Args:
        root: the state root.
        user: who runs the agent in a system install; empty for an install of
            the caller's own.

    Raises:
        OSError: the root cannot be written, or does not belong to us.
        LookupError: there is no such user.
    """
    root.path.mkdir(parents=True, exist_ok=True)
    if user:
        # First of all: from now on nobody else can change a name below it.
        os.chown(root.path, 0, 0)
    root.path.chmod(READABLE if user else PRIVATE)
    for folder in (root.versions, root.updater, root.keys, root.downloads, root.logs):
        _folder(folder, READABLE)
    owner = ids_of(user) if user else None
    for folder in (root.agent, root.outbox, root.workers, root.models):
        _folder(folder, PRIVATE, owner)
    _folder(root.run, TRAVERSABLE if user else PRIVATE, owner)
    if owner:
        give_files(root, owner)
        # launchd writes it as the agent's user, and the folder of the updater's log is not that user's.
        log = root.logs / AGENT_LOG
        log.touch(mode=0o640)
        os.chown(log, *owner)


def give_files(root: StateRoot, owner: tuple[int, int]) -> None:
    """Gives the agent's user the files that root has made in its folders, as a join does.

    Nothing but a file of root's that has this one name is given away: the folders are that user's, who may
    have linked to what is not.

    Raises:
        OSError: a folder or file cannot be read.
    """
    for folder in (root.agent, root.run):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NEVER_A_LINK)
        try:
            _give_inside(descriptor, owner)
        finally:
            os.close(descriptor)


def _give_inside(folder: int, owner: tuple[int, int]) -> None:
    """By descriptors, as that user may put another folder in the place of one at any moment."""
    for name in os.listdir(folder):
        kind = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
            continue
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _NEVER_A_LINK, dir_fd=folder)
        try:
            found = os.fstat(descriptor)
            is_folder = stat.S_ISDIR(found.st_mode)
            if is_folder:
                _give_inside(descriptor, owner)
            if found.st_uid == os.geteuid() and (is_folder or _has_one_name(found)):
                os.fchown(descriptor, *owner)
        finally:
            os.close(descriptor)


def _has_one_name(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def ids_of(user: str) -> tuple[int, int]:
    """The ids of a user and of that user's first group.

    Raises:
        LookupError: there is no such user.
    """
    found = pwd.getpwnam(user)
    return found.pw_uid, found.pw_gid


def foreign_hands(folder: Path) -> list[Path]:
    """The folders above a state root in which somebody else than root could put another in its place.

    Args:
        folder: the state root; it need not exist.
    """
    return [path for path in folder.resolve().parents if path.exists() and _is_open(path.stat())]


def _is_open(status: os.stat_result) -> bool:
    is_shared = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    return status.st_uid != 0 or (is_shared and not status.st_mode & stat.S_ISVTX)


def _folder(path: Path, mode: int, owner: tuple[int, int] | None = None) -> None:
    path.mkdir(exist_ok=True)
    path.chmod(mode)
    if owner:
        os.chown(path, *owner)

"""The user that runs the agent in a system install on Linux, with a group of the same name."""

from __future__ import annotations

import pwd
import sys
from pathlib import Path

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.errors import HostError, Reason

_SECONDS = 30.0


def exists(name: str) -> bool:
    """Whether there is such a user."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def command_that_makes(name: str, home: Path) -> tuple[str, ...]:
    """What makes that user: no password, no shell, no home of its own."""
    fixed = ("useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
    return (*fixed, "--home-dir", str(home), name)


def make(name: str, home: Path) -> None:
    """Makes the user.

    Args:
        name: of user and group.
        home: what its home is said to be, the state root.

    Raises:
        HostError: it cannot be made here.
    """
    if sys.platform == "darwin":
        raise HostError(
            Reason.SELF_UPDATE_UNAVAILABLE,
            f"there is no user {name} on this Mac",
            "Name one that there is with --run-as, such as your own.",
        )
    done = SubprocessCommandRunner().run(*command_that_makes(name, home), timeout_seconds=_SECONDS)
    if done.code != 0:
        raise HostError(
            Reason.SELF_UPDATE_UNAVAILABLE,
            f"the user {name} cannot be made: {' '.join(done.stderr.split()) or done.code}",
            "Make it yourself, or name another one with --run-as.",
        )


def remove(name: str) -> bool:
    """Removes the user and its group; whether that was possible."""
    return SubprocessCommandRunner().run("userdel", name, timeout_seconds=_SECONDS).code == 0

"""Where a node keeps its state, and which file its settings are read from.  Reads neither.

In text and without pathlib, which `lane run` has no time to load; `settings/` has the same as paths.
"""

from __future__ import annotations

import os
import sys

from journeyman_updater.contract import names

# A variable of this name is true to type checkers.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

SYSTEM_ROOT = "/var/lib/journeyman"


class Place:
    """Where settings are looked for.

    Attributes:
        config_file: the TOML file.
        named: whether somebody named it, so that it must exist.
        default_root: the state root if no source sets one.
        home: what a leading ~ stands for.
    """

    def __init__(self, config_file: str, default_root: str, home: str, *, named: bool) -> None:
        self.config_file = config_file
        self.default_root = default_root
        self.home = home
        self.named = named


def default_state_root(
    environ: Mapping[str, str],
    *,
    platform: str,
    uid: int,
    home: str,
    groups: Collection[int] = (),
    system_root: str = SYSTEM_ROOT,
) -> str:
    """Where the node is that a command is about, if nobody says otherwise.

    Once `journeyman install` has made a system install, that is the one for root and for the user who runs
    its agent, and for others in that user's group who have no node of their own.  Otherwise it is the user's
    own place, for root too.

    Args:
        environ: the environment.
        platform: `sys.platform`.
        uid: the user's id.
        home: the user's home.
        groups: the ids of the user's groups.
        system_root: the system's place; tests hand in another.
    """
    own = own_state_root(environ, platform=platform, home=home)
    try:
        os.stat(os.path.join(system_root, names.INSTALLATION_FILE))
        agent = os.stat(os.path.join(system_root, names.RUN))
    except OSError:
        return own  # There is none that this user could look into.
    is_for_us = uid in {0, agent.st_uid} or (agent.st_gid in groups and not os.path.exists(own))
    return system_root if is_for_us else own


def own_state_root(environ: Mapping[str, str], *, platform: str, home: str) -> str:
    """The user's own place: `journeyman up` writes nothing outside the home, not even as root."""
    if platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "journeyman")
    # The XDG specification says that a relative path there is to be ignored.
    data_home = environ.get("XDG_DATA_HOME", "")
    return os.path.join(
        data_home if os.path.isabs(data_home) else os.path.join(home, ".local", "share"), "journeyman"
    )


def locate(
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    config_file: str | None = None,
    default_root: str | None = None,
) -> Place:
    """Says which file settings are read from; arguments as for `load_settings`."""
    home = environ.get("HOME") or os.path.expanduser("~")
    if default_root is None:
        default_root = default_state_root(
            environ, platform=sys.platform, uid=os.getuid(), home=home, groups=os.getgroups()
        )
    named = config_file or environ.get("JOURNEYMAN_CONFIG")
    if named:
        return Place(absolute(named, os.getcwd(), home), default_root, home, named=True)
    root = flags.get("state_root") or environ.get("JOURNEYMAN_STATE_ROOT") or default_root
    file = os.path.join(absolute(os.fspath(root), os.getcwd(), home), names.CONFIG_FILE)
    return Place(file, default_root, home, named=False)


def absolute(path: str, folder: str, home: str) -> str:
    """The path as it is found from `folder`, with a leading ~ replaced."""
    return os.path.join(home, path[2:]) if path.startswith("~/") else os.path.join(folder, path)

"""What an installation has made of a state root: `install.json`, and what starts the agent by it.

Apart from the making, as a release is asked for its unit before each update, and quickly.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from journeyman_updater.adapters.service.installers import Target, installer_for
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot, write_durably
from journeyman_updater.model.unit import Unit


@dataclass(frozen=True)
class Made:
    """What an installation has made; the whole of `install.json`.

    Attributes:
        service: one of the setting `service`.
        user: who runs the agent in a system install, or an empty string.
        made_user: whether that user is ours to remove.
        folder: of runit or launchd, see `Target`.
        launchctl: the path of launchd's tool.
        before: what lay in the state root already, by name; it stays.
        shares_socket: see `Target`; the contract reads it, too.
    """

    service: str
    user: str = ""
    made_user: bool = False
    folder: str = ""
    launchctl: str = "/bin/launchctl"
    before: tuple[str, ...] = ()
    shares_socket: bool = False


def target_of(root: StateRoot, made: Made) -> Target:
    """Where that installation lies."""
    return Target(root, made.service, made.user, made.folder, made.launchctl)


def read_made(root: StateRoot) -> Made | None:
    """What an earlier installation has made here, or None if there is none.

    Raises:
        ValueError: the file is not ours.
    """
    path = root.installation_file
    try:
        value: Any = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    if not isinstance(value, dict) or value.pop("format", None) != 1:
        raise ValueError(f"{path} is not in format 1")
    known = {name: value[name] for name in Made.__dataclass_fields__ if name in value}
    return Made(**{**known, "before": tuple(known.get("before", ()))})


def agent_unit(root: StateRoot) -> Unit:
    """What starts the agent of that installation, as this release would write it.

    Raises:
        ValueError: `install.json` is not ours.
    """
    made = read_made(root)
    return Unit(installer_for(target_of(root, made), SystemClock()).agent_unit() if made else {})


def write_made(root: StateRoot, made: Made) -> None:
    """Notes what there is to remove, before it is made."""
    write_durably(root.installation_file, json.dumps({"format": 1, **asdict(made)}).encode(), mode=0o644)

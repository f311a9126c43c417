"""Every interval and deadline of the updater, in seconds; `updater.json` holds those that differ."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

SERVICES = ("none", "systemd", "systemd-user", "runit", "launchd", "launchd-gui", "launchd-user", "termux")
"""No service manager, systemd's system manager, that of the user who runs the updater, runit, launchd's
domains (the system's, that of a login to the desktop, and that of a user), and a PRoot guest that is kept
from the Termux side: to the updater in it the same as none."""


@dataclass(frozen=True)
class Settings:
    """All settings.

    Attributes:
        start_seconds: from the request for a restart to a new process.
        ready_margin_seconds: added to the deadline of READY, which is in state.json for the guard's sake.
        beat_seconds: between two attempts of a heartbeat, and from READY to the first.
        accept_seconds: from the first attempt to the first accepted heartbeat, while the API can be reached.
        soak_seconds: from the first accepted heartbeat to HEALTHY.
        patience_seconds: how long an inconclusive trial is watched before the updater comes back later.
        drain_seconds: how long work that cannot be handed over is waited for.
        stop_seconds: how long the agent may take to stop in good order.
        proof_seconds: how long a restarted agent may take to report.
        poll_seconds: between two looks.
        exec_check_seconds: how long a release may take to say its version.
        api_seconds: for each part of a request to the control plane.
        gates_age_seconds: what the gates say is no veto of a fetch when it is older.
        retry_pause_seconds: before a release that was undone by no fault of its own is tried again; the
            pause before the third and last try is four times as long.
        start_spread_seconds: the longest time a host waits for its turn with a new release of the control
            plane; each host has its own part of it, and 0 lets all begin at once.
        stall_seconds: a transfer in which no byte comes for so long has stalled.
        allow_unsigned: whether a release without a signature may pass.
        plain_http_hosts: hosts beside loopback from which an artifact may come without TLS.
        service: who starts the guard: one of SERVICES.
        service_folder: of runit, the folder of our service below the one that runsvdir watches; of launchd,
            where property lists lie, if that is not the usual place.
        launchctl: the path of launchd's tool.
    """

    start_seconds: float = 30.0
    ready_margin_seconds: float = 5.0
    beat_seconds: float = 45.0
    accept_seconds: float = 60.0
    soak_seconds: float = 60.0
    patience_seconds: float = 120.0
    drain_seconds: float = 300.0
    stop_seconds: float = 30.0
    proof_seconds: float = 45.0
    poll_seconds: float = 0.5
    exec_check_seconds: float = 30.0
    api_seconds: float = 8.0
    gates_age_seconds: float = 120.0
    retry_pause_seconds: float = 900.0
    start_spread_seconds: float = 0.0
    stall_seconds: float = 60.0
    allow_unsigned: bool = False
    plain_http_hosts: tuple[str, ...] = ()
    service: str = "none"
    service_folder: str = ""
    launchctl: str = "/bin/launchctl"

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Reads the file; all defaults if there is none.

        Raises:
            ValueError: a name or a value is wrong; one line that says which.
        """
        try:
            found: Any = json.loads(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except ValueError as error:
            raise ValueError(f"{path} is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"{path} holds no JSON object")  # noqa: TRY004
        return cls(**{name: _checked(path, name, value) for name, value in found.items()})


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Settings)}


def _checked(path: Path, name: str, value: Any) -> Any:
    if name not in _DEFAULTS:
        near = difflib.get_close_matches(name, _DEFAULTS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{path} has an unknown setting {name!r}{hint}")
    default = _DEFAULTS[name]
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ValueError(f"{path}: {name} has to be a list of texts")
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        raise ValueError(f"{path}: {name} has to be true or false")
    if isinstance(default, str):
        return _checked_text(path, name, value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Zero is a wait that is left out, and no deadline at all.
    if is_number and (0 < value <= 86_400 or value == default):  # noqa: PLR2004
        return float(value)
    raise ValueError(f"{path}: {name} has to be a number of seconds from above 0 to 86400")


def _checked_text(path: Path, name: str, value: Any) -> str:
    if name == "service" and value not in SERVICES:
        raise ValueError(f"{path}: service has to be one of {', '.join(SERVICES)}")
    if isinstance(value, str):
        return value
    raise ValueError(f"{path}: {name} has to be a text")

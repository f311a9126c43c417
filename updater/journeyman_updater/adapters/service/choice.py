"""The one place that knows all service managers by name."""

from __future__ import annotations

import os
from pathlib import Path

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.service.launchctl import Launchctl
from journeyman_updater.adapters.service.launchd import LaunchdServiceManager
from journeyman_updater.adapters.service.launchd_registration import LaunchdRegistration
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.service.runit import RunitServiceManager
from journeyman_updater.adapters.service.systemd import SystemdServiceManager, user_environment
from journeyman_updater.contract import StateRoot
from journeyman_updater.core.service_files.launchd import AGENT as LAUNCHD_AGENT
from journeyman_updater.core.service_files.launchd import KINDS
from journeyman_updater.ports import Clock, ServiceManager


def service_manager(
    name: str,
    root: StateRoot,
    clock: Clock,
    *,
    stop_seconds: float,
    service_folder: str = "",
    launchctl: str = "/bin/launchctl",
) -> ServiceManager:
    """The adapter for what keeps the agent of a state root.

    Args:
        name: as in the setting `service`.
        root: the state root.
        clock: for its waits.
        stop_seconds: how long the agent may take to stop in good order.
        service_folder: of runit and launchd, see the setting.
        launchctl: the path of launchd's tool.
    """
    if name in KINDS:
        return launchd(name, root, clock, stop_seconds=stop_seconds, folder=service_folder, program=launchctl)
    if name == "systemd":
        return systemd(clock, stop_seconds=stop_seconds)
    if name == "systemd-user":
        return systemd_user(clock, stop_seconds=stop_seconds)
    if name == "runit":
        return runit(Path(service_folder), clock, stop_seconds=stop_seconds)
    return ParentServiceManager(root.guard_file, clock, stop_seconds=stop_seconds)


def systemd(clock: Clock, *, stop_seconds: float) -> SystemdServiceManager:
    """The system's manager."""
    return SystemdServiceManager(
        SubprocessCommandRunner(),
        clock,
        user=False,
        unit_folder=Path("/etc/systemd/system"),
        stop_seconds=stop_seconds,
    )


def systemd_user(clock: Clock, *, stop_seconds: float) -> SystemdServiceManager:
    """The manager of the user who calls it."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
    return SystemdServiceManager(
        SubprocessCommandRunner(user_environment(os.getuid())),
        clock,
        user=True,
        unit_folder=config / "systemd" / "user",
        stop_seconds=stop_seconds,
    )


def runit(service: Path, clock: Clock, *, stop_seconds: float) -> RunitServiceManager:
    """A service that runsvdir finds; its files lie in `sv` beside the folder that is watched, as is usual."""
    return RunitServiceManager(
        SubprocessCommandRunner(),
        clock,
        service=service,
        definition=definition_of(service),
        stop_seconds=stop_seconds,
    )


def definition_of(service: Path) -> Path:
    """Where the files of a service of runit lie."""
    return service.parent.parent / "sv" / service.name


def launchd(
    name: str,
    root: StateRoot,
    clock: Clock,
    *,
    stop_seconds: float,
    folder: str = "",
    program: str = "/bin/launchctl",
) -> LaunchdServiceManager:
    """The domain where the agent belongs, and the others in which somebody may have registered it.

    Args:
        name: a key of KINDS.
        root: the state root; whose `run` belongs to the agent's user.
        clock: for its waits.
        stop_seconds: how long the agent may take to stop in good order.
        folder: where the property list lies; empty for the usual place.
        program: the path of launchctl.
    """
    uid = root.run.stat().st_uid if root.run.exists() else os.getuid()
    domains = {"system": "system", "gui": f"gui/{uid}", "user": f"user/{uid}"}
    home = domains.pop(KINDS[name])
    plist = property_list(name, folder)
    tool = Launchctl(SubprocessCommandRunner(), LAUNCHD_AGENT, (home, *domains.values()), program=program)
    return LaunchdServiceManager(tool, LaunchdRegistration(tool, plist, clock), stop_seconds=stop_seconds)


def property_list(name: str, folder: str = "") -> Path:
    """Where the agent's property list lies."""
    usual = "/Library/LaunchDaemons" if KINDS[name] == "system" else "~/Library/LaunchAgents"
    return Path(folder or usual).expanduser() / f"{LAUNCHD_AGENT}.plist"

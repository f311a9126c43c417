"""What an installation adds to a host for each service manager: its files, its start, and its removal.

The adapters beside this file know how to write, start and stop; here is what of it makes one installation.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.service import choice
from journeyman_updater.adapters.service.launchctl import Launchctl
from journeyman_updater.adapters.service.launchd_registration import LaunchdRegistration
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.state_root import AGENT_LOG
from journeyman_updater.contract import ProcessIdentity, StateRoot
from journeyman_updater.core.service_choice import LAUNCHD_SERVICES, starts_when
from journeyman_updater.core.service_files import launchd as launchd_files
from journeyman_updater.core.service_files import systemd as systemd_files
from journeyman_updater.core.service_files.runit import AGENT_SCRIPTS, RunitSettings, render_runit
from journeyman_updater.errors import Reason, RestartError
from journeyman_updater.ports import Clock

STOP_SECONDS = 30
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Target:
    """Where an installation goes.

    Attributes:
        root: the state root.
        service: one of the setting `service`.
        user: who runs the agent in a system install; empty for the caller.
        folder: what runsvdir watches, or where property lists lie if that is not the usual place.
        launchctl: the path of launchd's tool.
    """

    root: StateRoot
    service: str
    user: str = ""
    folder: str = ""
    launchctl: str = "/bin/launchctl"

    @property
    def shares_socket(self) -> bool:
        """Whether the agent listens in `/run/journeyman`, for its group."""
        return bool(self.user) and self.service not in LAUNCHD_SERVICES

    @property
    def service_folder(self) -> str:
        """As the setting `service_folder` wants it."""
        return str(Path(self.folder, "journeyman")) if self.service == "runit" else self.folder


class Installer(Protocol):
    """What an installation is on one service manager."""

    def files(self) -> dict[Path, bytes]:
        """All that is written outside the state root, by path."""
        ...

    def agent_unit(self) -> dict[str, bytes]:
        """What of `files` starts the agent, by name: what a later release may bring anew."""
        ...

    def commands(self) -> list[str]:
        """What is run, for people."""
        ...

    def is_installed(self) -> bool:
        """Whether all of the files are there as they would be written."""
        ...

    def running(self) -> ProcessIdentity | None:
        """The agent that the manager keeps, or None."""
        ...

    def install(self) -> None:
        """Checks and writes the files.  Raises UpdaterError; nothing is written if one is not sound."""
        ...

    def start(self) -> None:
        """Starts agent and updater, now and as `starts` says.  Not an error if they run."""
        ...

    def uninstall(self) -> None:
        """Stops both and removes the files.  Not an error if there are none; workers go on."""
        ...

    def starts(self) -> str:
        """See `starts_when`."""
        ...


def next_step(target: Target) -> str:
    """What a person does elsewhere before the agent can run; empty where `Installer.start` starts it."""
    if target.service != "termux":
        return ""
    return f"in Termux, not in the guest: sh proot/install.sh --root {shlex.quote(str(target.root.path))}"


def installer_for(target: Target, clock: Clock) -> Installer:
    """The one for that target's service manager."""
    if target.service in LAUNCHD_SERVICES:
        return LaunchdInstaller(target, clock)
    if target.service == "runit":
        return RunitInstaller(target, clock)
    if target.service in {"none", "termux"}:
        return ParentInstaller(target, clock)
    return SystemdInstaller(target, clock)


class SystemdInstaller:
    """Four units; the agent's, the updater's timer and its path unit are enabled."""

    def __init__(self, target: Target, clock: Clock) -> None:
        is_user = target.service == "systemd-user"
        make = choice.systemd_user if is_user else choice.systemd
        self._target = target
        self._manager = make(clock, stop_seconds=STOP_SECONDS)
        self._spelled = "systemctl --user" if is_user else "systemctl"
        root = target.root
        self._units = systemd_files.render_systemd(
            systemd_files.SystemdSettings(
                root=str(root.path),
                guard=str(root.guard_launcher),
                updater=str(root.updater_launcher),
                user=target.user,
                nvidia_modprobe=shutil.which("nvidia-modprobe") or "",
            )
        )
        updater = systemd_files.UPDATER
        self._enabled = (systemd_files.AGENT_UNIT, f"{updater}.timer", f"{updater}.path")

    def files(self) -> dict[Path, bytes]:
        folder = self._manager.unit_folder
        return {folder / name: text.encode() for name, text in self._units.items()}

    def agent_unit(self) -> dict[str, bytes]:
        return {systemd_files.AGENT_UNIT: self._units[systemd_files.AGENT_UNIT].encode()}

    def commands(self) -> list[str]:
        names = " ".join(self._enabled)
        return [
            f"{self._spelled} daemon-reload",
            f"{self._spelled} enable {names}",
            f"{self._spelled} start {names}",
        ]

    def is_installed(self) -> bool:
        return _are_there(self.files())

    def running(self) -> ProcessIdentity | None:
        return self._manager.running()

    def install(self) -> None:
        self._manager.install(self._units)

    def start(self) -> None:
        self._manager.enable(*self._enabled)

    def uninstall(self) -> None:
        self._manager.uninstall(*self._units)

    def starts(self) -> str:
        return starts_when(self._target.service, lingers=self._manager.lingers())


class RunitInstaller:
    """Two services, the agent's and the updater's; runsvdir starts both."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._services = render_runit(
            RunitSettings(
                root=str(target.root.path),
                guard=str(target.root.guard_launcher),
                updater=str(target.root.updater_launcher),
                user=target.user,
                path=systemd_files.SYSTEM_PATH,
                log_folder=str(target.root.logs),
            )
        )
        self._managers = {
            name: choice.runit(Path(target.folder, name), clock, stop_seconds=STOP_SECONDS)
            for name in self._services
        }

    def files(self) -> dict[Path, bytes]:
        definitions = Path(self._target.folder).parent / "sv"
        return {
            definitions / service / name: text.encode()
            for service, files in self._services.items()
            for name, text in files.items()
        }

    def agent_unit(self) -> dict[str, bytes]:
        return {name: self._services["journeyman"][name].encode() for name in AGENT_SCRIPTS}

    def commands(self) -> list[str]:
        definitions = Path(self._target.folder).parent / "sv"
        return [f"ln -s {definitions / name} {self._target.folder}/" for name in self._services]

    def is_installed(self) -> bool:
        links = all(Path(self._target.folder, name).exists() for name in self._services)
        return links and _are_there(self.files())

    def running(self) -> ProcessIdentity | None:
        return self._managers["journeyman"].running()

    def install(self) -> None:
        for name, manager in self._managers.items():
            manager.install(self._services[name])

    def start(self) -> None:
        for manager in self._managers.values():
            manager.enable()

    def uninstall(self) -> None:
        for manager in self._managers.values():
            manager.uninstall()

    def starts(self) -> str:
        return starts_when("runit")


class LaunchdInstaller:
    """Two jobs, the agent's and the updater's."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        uid = os.getuid()
        # Not as the setting has it: its domain is that of the agent's user, who is root's choice here.
        settings = launchd_files.LaunchdSettings(
            kind=launchd_files.KINDS[target.service],
            guard=str(target.root.guard_launcher),
            updater=str(target.root.updater_launcher),
            root=str(target.root.path),
            log_folder=str(target.root.logs),
            user=target.user or None,
            uid=uid,
        )
        self._texts = {
            launchd_files.UPDATER: launchd_files.render_updater(settings),
            launchd_files.AGENT: launchd_files.render_agent(settings),
        }
        domains = {"system": "system", "gui": f"gui/{uid}", "user": f"user/{uid}"}
        self._domain = domains.pop(launchd_files.KINDS[target.service])
        every = (self._domain, *domains.values())
        runner = SubprocessCommandRunner()
        self._tools = {
            label: Launchctl(runner, label, every, program=target.launchctl) for label in self._texts
        }
        self._registrations = {
            label: LaunchdRegistration(tool, self._plist(label), clock) for label, tool in self._tools.items()
        }
        self._manager = choice.launchd(
            target.service,
            target.root,
            clock,
            stop_seconds=STOP_SECONDS,
            folder=target.folder,
            program=target.launchctl,
        )

    def files(self) -> dict[Path, bytes]:
        return {self._plist(label): text for label, text in self._texts.items()}

    def agent_unit(self) -> dict[str, bytes]:
        return {self._plist(launchd_files.AGENT).name: self._texts[launchd_files.AGENT]}

    def commands(self) -> list[str]:
        return [f"launchctl bootstrap {self._domain} {path}" for path in self.files()]

    def is_installed(self) -> bool:
        return all(
            path.is_file() and launchd_files.are_same(path.read_bytes(), text)
            for path, text in self.files().items()
        )

    def running(self) -> ProcessIdentity | None:
        return self._manager.running()

    def install(self) -> None:
        for label, registration in self._registrations.items():
            self._plist(label).parent.mkdir(parents=True, exist_ok=True)
            registration.install(self._texts[label])

    def start(self) -> None:
        for label, registration in self._registrations.items():
            found = self._tools[label].look().first
            if found is None:
                registration.create(self._domain)
            elif registration.is_old(found):
                registration.renew(found)

    def uninstall(self) -> None:
        for registration in self._registrations.values():
            registration.uninstall()

    def starts(self) -> str:
        return starts_when(self._target.service)

    def _plist(self, label: str) -> Path:
        usual = (
            Path("/Library/LaunchDaemons")
            if self._target.service == "launchd"
            else Path("~/Library/LaunchAgents").expanduser()
        )
        return Path(self._target.folder or usual, f"{label}.plist")


class ParentInstaller:
    """The parent alone: started once and not at a boot, or, in a guest, from the Termux side."""

    def __init__(self, target: Target, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._manager = ParentServiceManager(target.root.guard_file, clock)

    def files(self) -> dict[Path, bytes]:
        return {}

    def agent_unit(self) -> dict[str, bytes]:
        return {}

    def commands(self) -> list[str]:
        if next_step(self._target):
            return []
        return [f"sh {self._target.root.parent_launcher} >> {self._log} 2>&1 &"]

    def is_installed(self) -> bool:
        return True

    def running(self) -> ProcessIdentity | None:
        return self._manager.running()

    def install(self) -> None:
        """There is nothing to write."""

    def start(self) -> None:
        if self._manager.parent() is not None or next_step(self._target):
            return
        with self._log.open("ab") as log:
            # By a shell that ends at once, so that it is a child of process 1 and not of ours.
            subprocess.run(
                ["/bin/sh", "-c", '"$0" &', str(self._target.root.parent_launcher)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd="/",
                check=True,
            )

    def uninstall(self) -> None:
        parent = self._manager.parent()
        if parent is None:
            return
        if next_step(self._target):
            raise RestartError(
                Reason.RESTART_NOT_PERMITTED,
                "the Termux side keeps the agent and would start it again",
                "Run first, in Termux: sh proot/install.sh --uninstall",
            )
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent.pid, signal.SIGTERM)
        for _ in range(int((STOP_SECONDS + 10) / _POLL_SECONDS)):
            if not parent.is_running():
                return
            self._clock.wait(_POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.kill(parent.pid, signal.SIGKILL)

    def starts(self) -> str:
        return starts_when(self._target.service)

    @property
    def _log(self) -> Path:
        return self._target.root.logs / AGENT_LOG


def _are_there(files: dict[Path, bytes]) -> bool:
    return all(path.is_file() and path.read_bytes() == text for path, text in files.items())

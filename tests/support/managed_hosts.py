"""State roots that a real service manager keeps, with the product's own files and adapters."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Protocol

from journeyman_updater import guard
from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.service.choice import systemd, systemd_user
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.service.runit import RunitServiceManager
from journeyman_updater.adapters.service.systemd import SystemdServiceManager
from journeyman_updater.adapters.state_root import lay_out
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import StateRoot, WorkerFolder, WorkerRecord, WorkerSpec
from journeyman_updater.core.service_files.systemd import AGENT_UNIT, SystemdSettings, render_systemd
from journeyman_updater.ports import ServiceManager
from journeyman_updater.run import Updater
from tests.simulator.releases import SmallRelease
from tests.support.fake_systemd import FakeRunsv, FakeSystemd
from tests.support.kept_host import SETTINGS, UPDATER_PACKAGES, KeptHost, KeptRoot
from tests.support.waiting import eventually

SERVICE_USER = "journeyman"
STOP_SECONDS = 2


class ManagedHost(Protocol):
    """What the contract suite needs of a host; 0.1.0 runs after `start`."""

    root: StateRoot

    @property
    def manager(self) -> ServiceManager: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def reported(self) -> str | None: ...
    def reported_pid(self) -> int: ...
    def starts(self) -> list[str]: ...
    def stops(self) -> list[str]: ...
    def order(self, *argv: str) -> None: ...
    def updater(self) -> Updater: ...


class HostWithoutManager(KeptHost):
    """The parent keeps the agent."""

    @property
    def manager(self) -> ServiceManager:
        return ParentServiceManager(self.root.guard_file, SystemClock(), stop_seconds=STOP_SECONDS)

    def stop(self) -> None:
        super().stop()
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)


class SystemdHost(KeptRoot):
    """systemd keeps the agent: as the user `journeyman`, or in the calling user's own manager.

    Args:
        folder: for everything.
        user: whether it is the caller's own manager.
    """

    def __init__(self, folder: Path, *, user: bool) -> None:
        super().__init__(folder)
        self.settings = replace(SETTINGS, service="systemd-user" if user else "systemd")
        self.manager = (systemd_user if user else systemd)(SystemClock(), stop_seconds=STOP_SECONDS)
        self.service_user = "" if user else SERVICE_USER
        self.units = render_systemd(self.unit_settings())

    def unit_settings(self) -> SystemdSettings:
        return SystemdSettings(
            root=str(self.root.path),
            guard=self.launcher("guard", guard),
            updater=str(self._updater_launcher()),
            user=self.service_user,
            watchdog_seconds=2,
            start_seconds=10,
            stop_seconds=STOP_SECONDS,
        )

    def start(self) -> None:
        lay_out(self.root, self.service_user)
        self.root.updater_settings.write_text(json.dumps(asdict(self.settings)))
        self.manager.install(self.units)
        self.manager.enable(AGENT_UNIT)
        eventually(lambda: self.reported() == "0.1.0", within_seconds=20)

    def stop(self) -> None:
        self.manager.uninstall(*self.units)
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)
        shutil.rmtree(self.folder)

    def _updater_launcher(self) -> Path:
        path = self.folder / "updater launcher"
        path.write_text(
            f'#!/bin/sh\nPYTHONPATH={UPDATER_PACKAGES} exec {sys.executable} -m journeyman_updater "$@"\n'
        )
        path.chmod(0o755)
        return path


class RealAgentHost(SystemdHost):
    """`journeyman run` from this tree under systemd, with a control plane that nobody answers for."""

    def first_release(self) -> SmallRelease:
        packages = ":".join(sys.path)
        program = f'#!/bin/sh\nPYTHONPATH={packages} exec {sys.executable} -m journeyman "$@"\n'
        return SmallRelease(version="0.1.0", program=program)

    def start(self) -> None:
        self.root.config_file.write_text('server = "http://127.0.0.1:9"\nnode_name = "kept"\n')
        self.root.config_file.chmod(0o644)
        super().start()


class FakeSystemdHost(KeptRoot):
    """The fake of systemd keeps the agent."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        lay_out(self.root)
        root = str(self.root.path)
        command = [self.launcher("guard", guard), "--root", root, "--", "run", root]
        self.fake = FakeSystemd(command, stop_seconds=STOP_SECONDS)
        self.manager = SystemdServiceManager(
            self.fake,
            SystemClock(),
            user=False,
            unit_folder=folder / "units",
            stop_seconds=STOP_SECONDS,
            start_seconds=2,
        )

    def start(self) -> None:
        self.manager.install({AGENT_UNIT: ""})
        self.manager.enable(AGENT_UNIT)
        eventually(lambda: self.reported() == "0.1.0", within_seconds=20)

    def stop(self) -> None:
        self.fake.shut_down()
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)


class FakeRunitHost(KeptRoot):
    """The fake of runit keeps the agent."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        lay_out(self.root)
        root = str(self.root.path)
        command = [self.launcher("guard", guard), "--root", root, "--", "run", root]
        self.fake = FakeRunsv(command, folder / "on")
        self.manager = RunitServiceManager(
            self.fake,
            SystemClock(),
            service=folder / "on",
            definition=folder / "sv",
            stop_seconds=STOP_SECONDS,
            start_seconds=2,
        )

    def start(self) -> None:
        self.fake.start()
        eventually(lambda: self.reported() == "0.1.0", within_seconds=20)

    def stop(self) -> None:
        self.fake.shut_down()
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)


def start_worker(host: ManagedHost) -> WorkerRecord:
    """Lets the agent start a worker under a shim, and returns its record."""
    folder = WorkerFolder(host.root.workers / "w1")
    folder.files.mkdir(parents=True)
    folder.spec.write_bytes(WorkerSpec("test", ("/bin/sleep", "600")).to_json())
    # In a system install all this belongs to the agent's user.
    owner = host.root.run.stat()
    for path in (host.root.workers, folder.path, folder.files, folder.spec):
        os.chown(path, owner.st_uid, owner.st_gid)
    host.order(sys.executable, "-S", "-P", "-m", "journeyman_updater.shim", str(folder.path))
    eventually(folder.record.exists)
    return WorkerRecord.from_json(folder.record.read_bytes())

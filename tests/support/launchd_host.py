"""A state root that the fake launchd keeps, with the product's own files, guard and updater."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from journeyman_updater import guard
from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.service.choice import service_manager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.core.service_files.launchd import LaunchdSettings, render_agent
from journeyman_updater.ports import ServiceManager
from tests.support.fake_launchctl import FakeLaunchctl
from tests.support.fake_launchd import FakeLaunchd
from tests.support.kept_host import SETTINGS, KeptRoot
from tests.support.waiting import eventually


class LaunchdHost(KeptRoot):
    """A Mac with a system install.

    Args:
        folder: for everything.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        logs = folder / "logs"
        logs.mkdir()
        self.launchd = FakeLaunchd(folder, domains={"system"}, scale=0.1)
        self.tool = FakeLaunchctl(self.launchd)
        self.settings = replace(
            SETTINGS,
            service="launchd",
            service_folder=str(self.launchd.launch_daemons),
            launchctl=str(self.tool.folder / "launchctl"),
        )
        self.plist = self.launchd.launch_daemons / "dev.journeyman.agent.plist"
        self.plist.write_bytes(
            render_agent(
                LaunchdSettings(
                    kind="system",
                    guard=self.launcher("guard", guard),
                    updater="/usr/bin/true",
                    root=str(self.root.path),
                    log_folder=str(logs),
                )
            )
        )

    @property
    def manager(self) -> ServiceManager:
        """One that remembers nothing, as each run of the updater has it."""
        return service_manager(
            "launchd",
            self.root,
            SystemClock(),
            stop_seconds=2,
            service_folder=self.settings.service_folder,
            launchctl=self.settings.launchctl,
        )

    def start(self) -> None:
        """Registers the job as a boot would; returns once the active release has reported."""
        self.launchd.reboot()
        eventually(lambda: self.reported() == "0.1.0", within_seconds=20)

    def stop(self) -> None:
        """Ends everything."""
        self.tool.close()
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)

"""Real runit: a runsvdir of our own over a folder of our own, on the host or under PRoot."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

from journeyman_updater import guard
from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.service.runit import RunitServiceManager
from journeyman_updater.adapters.state_root import lay_out
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import identity_of
from journeyman_updater.core.service_files.runit import RunitSettings, render_runit
from tests.support.debian import ensure_debian_package
from tests.support.kept_host import SETTINGS, KeptRoot
from tests.support.managed_hosts import STOP_SECONDS
from tests.support.waiting import eventually


class Runsvdir:
    """One runsvdir, which looks for services in `on`; definitions lie in `sv` beside it.

    Args:
        folder: for both.
        under: words that the command is put behind, such as those of PRoot.
        environment: of the services, if it is not ours.
    """

    def __init__(
        self, folder: Path, under: tuple[str, ...] = (), environment: dict[str, str] | None = None
    ) -> None:
        ensure_debian_package("runit", "runsvdir")
        self._environment = environment
        self.services = folder / "on"
        self.definitions = folder / "sv"
        self.services.mkdir(parents=True)
        self.definitions.mkdir()
        self._under = under
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # Whatever has no log of its own, such as the updater, would speak among the figures of a benchmark.
        command = [*self._under, "runsvdir", "-P", str(self.services)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=self._environment)

    def stop(self) -> None:
        """Ends the services, each runsv and runsvdir itself."""
        if self._process is None:
            return
        for service in self.services.iterdir():
            subprocess.run(
                ["sv", "-w", "10", "force-shutdown", str(service)], capture_output=True, check=False
            )
        self.kill()

    def descendants(self) -> list[int]:
        """All processes of all services, and each runsv."""
        assert self._process is not None
        return _descendants(self._process.pid)

    def kill(self) -> None:
        """Kills all that descends from it, and it; returns once all have gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        descendants = [identity_of(pid) for pid in _descendants(self._process.pid)]
        for descendant in filter(None, descendants):
            with contextlib.suppress(ProcessLookupError):
                os.kill(descendant.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for descendant in filter(None, descendants):
            eventually(lambda: not descendant.is_running())  # noqa: B023


class RunitHost(KeptRoot):
    """runit keeps the agent, with the product's own files.

    Args:
        folder: for everything.
        under: as for `Runsvdir`.
    """

    def __init__(self, folder: Path, under: tuple[str, ...] = ()) -> None:
        super().__init__(folder)
        self.runsvdir = Runsvdir(folder, under)
        service = self.runsvdir.services / "journeyman"
        self.settings = replace(SETTINGS, service="runit", service_folder=str(service))
        self.manager = RunitServiceManager(
            SubprocessCommandRunner(),
            SystemClock(),
            service=service,
            definition=self.runsvdir.definitions / "journeyman",
            stop_seconds=STOP_SECONDS,
            start_seconds=5,
        )

    def files(self) -> dict[str, dict[str, str]]:
        return render_runit(
            RunitSettings(
                root=str(self.root.path),
                guard=self.launcher("guard", guard),
                updater="/bin/false",
                user="",
                path=os.environ["PATH"],
                log_folder=str(self.folder / "log folder"),
            )
        )

    def start(self) -> None:
        lay_out(self.root)
        self.manager.install(self.files()["journeyman"])
        self.manager.enable()
        self.runsvdir.start()
        eventually(lambda: self.reported() == "0.1.0", within_seconds=20)
        eventually((self.folder / "log folder" / "current").exists)

    def stop(self) -> None:
        self.manager.uninstall()
        self.runsvdir.stop()
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)
        shutil.rmtree(self.folder)


def _descendants(pid: int) -> list[int]:
    """Children first, so that nobody starts again what has just been ended."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, children.read_text().split()):
                found += [child, *_descendants(child)]
    return found

"""Real PRoot, with this host's own files as the guest, and the form in which a phone runs us in it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from journeyman_updater import guard, parent
from journeyman_updater.adapters.command_runner import SubprocessCommandRunner
from journeyman_updater.adapters.end_workers import end_workers
from journeyman_updater.adapters.service.runit import RunitServiceManager
from journeyman_updater.adapters.state_root import lay_out
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.core.launcher import render_launcher
from journeyman_updater.installation import Made, write_made
from tests.support.debian import ensure_debian_package
from tests.support.kept_host import KeptRoot
from tests.support.termux import FakeTermux
from tests.support.waiting import eventually

STOP_SECONDS = 3


def proot_words() -> tuple[str, ...]:
    """What runs a command in a guest."""
    return (ensure_debian_package("proot"), "-0", "-w", "/")


class TermuxHost(KeptRoot):
    """A phone: the service of `proot/install.sh` keeps the guest, and the parent in that the agent."""

    updater_program = "/bin/false"

    def __init__(self, folder: Path, *, busybox: bool = False) -> None:
        super().__init__(folder)
        self.termux = FakeTermux(folder, busybox=busybox)
        self.runsvdir = self.termux.runsvdir
        service = self.runsvdir.services / "journeyman"
        self.outside = RunitServiceManager(
            SubprocessCommandRunner(),
            SystemClock(),
            service=service,
            definition=service,
            stop_seconds=STOP_SECONDS,
        )

    def lay_guest(self) -> None:
        """What `journeyman install --service termux` leaves in a guest."""
        lay_out(self.root)
        write_made(self.root, Made("termux"))
        arguments = ("--root", str(self.root.path), "--guard", self.launcher("guard", guard))
        more = ("--updater", self.updater_program, "--", "run", "--state-root", str(self.root.path))
        text = render_launcher(
            str(parent.__file__), recorded_python=sys.executable, arguments=(*arguments, *more)
        )
        self.root.parent_launcher.write_text(text)
        self.root.parent_launcher.chmod(0o755)

    def start(self, *options: str) -> str:
        """Installs and starts it all; returns what the installation said."""
        self.lay_guest()
        asked = self.termux.start_install("--root", str(self.root.path), *options)
        # It looks every five seconds, and at once when it starts.
        eventually((self.runsvdir.services / "journeyman").exists)
        self.runsvdir.start()
        eventually(lambda: self.reported() == "0.1.0", within_seconds=30)
        # These agents know no control plane.
        self.root.last_beat_file.touch()
        out, err = asked.communicate(timeout=60)
        assert asked.returncode == 0, out + err
        return out

    def stop(self) -> None:
        self.termux.install("--uninstall")
        self.runsvdir.stop()
        end_workers(self.root.workers, SystemClock(), grace_seconds=1)
        shutil.rmtree(self.folder)

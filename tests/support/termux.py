"""A phone without Android: a prefix as Termux has it, real runit, and programs that answer as Termux:API.

`proot-distro` is one of them; it enters real PRoot, with this host's own files as the guest.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.debian import ensure_debian_package
from tests.support.runit import Runsvdir

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALL = REPOSITORY / "proot" / "install.sh"
COMMAND_SECONDS = 120
CHARGED = {
    "present": True, "technology": "Li-ion", "health": "GOOD", "plugged": "PLUGGED_AC", "status": "FULL",
    "temperature": 29.5, "voltage": 4311, "current": -1200, "percentage": 97, "level": 97, "scale": 100,
}  # fmt: skip
ON_WIFI = {
    "bssid": "02:00:00:00:00:00", "frequency_mhz": 5180, "ip": "192.0.2.17", "link_speed_mbps": 433,
    "mac_address": "02:00:00:00:00:00", "network_id": 3, "rssi": -48, "ssid": "at home", "ssid_hidden": False,
    "supplicant_state": "COMPLETED",
}  # fmt: skip

APPLETS = (
    "cat", "chmod", "cut", "dirname", "env", "find", "grep", "head", "mkdir", "mv", "rm", "sed", "setsid",
    "sh", "sleep", "tail", "timeout", "tr",
)  # fmt: skip

# As in Termux, the command is a script and what hangs is its child.
ASK = """#!/bin/sh
echo "{name}" >> "{folder}/calls"
[ ! -e "{folder}/{name}.hangs" ] || sleep 600
cat "{folder}/{name}.json"
"""
WAKE = """#!/bin/sh
[ ! -e "{folder}/no-lock" ] || exit 1
echo {word} >> "{folder}/wakefulness"
"""
DISTRO = """#!/bin/sh
[ "$1 $2 $3" = "login debian --" ] || {{ echo "unexpected: $*" >&2; exit 1; }}
shift 3
exec {proot} -0 -r / -w / "$@"
"""


class FakeTermux:
    """The prefix, the home, and the services of one phone.

    Args:
        folder: for all of it.
        busybox: whether BusyBox stands in for dash and coreutils.
    """

    def __init__(self, folder: Path, *, busybox: bool = False) -> None:
        self.folder = folder
        self.prefix = folder / "usr"
        self.home = folder / "the home"
        self.shared = self.home / ".journeyman"
        (self.prefix / "bin").mkdir(parents=True)
        self.home.mkdir()
        for name, answer in (("battery-status", CHARGED), ("wifi-connectioninfo", ON_WIFI)):
            self.answer(f"termux-{name}", answer)
            self._program(f"termux-{name}", ASK.format(folder=folder, name=f"termux-{name}"))
        for word in ("lock", "unlock"):
            self._program(f"termux-wake-{word}", WAKE.format(folder=folder, word=word))
        self._program("proot-distro", DISTRO.format(proot=ensure_debian_package("proot")))
        if busybox:
            tool = ensure_debian_package("busybox")
            for applet in APPLETS:
                (self.prefix / "bin" / applet).symlink_to(tool)
        rootfs = self.prefix / "var/lib/proot-distro/containers/debian/rootfs"
        rootfs.parent.mkdir(parents=True)
        rootfs.symlink_to("/")
        path = f"{self.prefix}/bin:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "PREFIX": str(self.prefix), "HOME": str(self.home)}
        self.runsvdir = Runsvdir(folder, environment=self.environment)
        self.environment["SVDIR"] = str(self.runsvdir.services)

    def _program(self, name: str, text: str) -> None:
        path = self.prefix / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def answer(self, program: str, value: object) -> None:
        """What that program prints from now on."""
        temporary = self.folder / f".{program}"
        temporary.write_text(json.dumps(value, indent=2) + "\n")
        temporary.replace(self.folder / f"{program}.json")

    def hang(self, program: str) -> None:
        """Lets that program hang from now on."""
        (self.folder / f"{program}.hangs").touch()

    def calls(self, program: str) -> int:
        """How often that program was asked."""
        path = self.folder / "calls"
        return path.read_text().splitlines().count(program) if path.exists() else 0

    def wakefulness(self) -> list[str]:
        """What was asked of the wake lock, in order."""
        path = self.folder / "wakefulness"
        return path.read_text().split() if path.exists() else []

    def start_install(self, *options: str | Path) -> subprocess.Popen[str]:
        """Starts `proot/install.sh`."""
        return subprocess.Popen(
            [self._shell(), INSTALL, *map(str, options)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, script: Path) -> subprocess.Popen[bytes]:
        """Runs a script in the foreground of Termux."""
        return subprocess.Popen([self._shell(), script], env=self.environment, stdin=subprocess.DEVNULL)

    def _shell(self) -> str:
        return shutil.which("sh", path=self.environment["PATH"]) or "/bin/sh"

    def install(self, *options: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs `proot/install.sh` to its end."""
        process = self.start_install(*options)
        out, err = process.communicate(timeout=COMMAND_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

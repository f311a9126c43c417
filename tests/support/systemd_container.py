"""Real systemd as process 1 of a container over an overlay of this host, booted in about a second.

systemd-nspawn keeps it, with none of the host's own units and a network of its own.  Commands enter it with
nsenter.  All that is made (two mounts, a cgroup in each hierarchy, one folder) is gone after `down`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.debian import ensure_debian_package
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).resolve().parents[2]
INSIDE = Path("/opt/repository")
CGROUPS = Path("/sys/fs/cgroup")
REBOOT = 133  # What nspawn returns when the container asked for a reboot.
POWER_OFF = signal.SIGRTMIN + 4  # systemd(1), signals.
UNWANTED = (
    "systemd-udevd",
    "systemd-udev-trigger",
    "systemd-networkd",
    "systemd-timesyncd",
    "systemd-resolved",
    "getty@tty1",
    "console-getty",
)


class SystemdContainer:
    """One container.  Use `booted`.

    Args:
        version_2: whether it has cgroups of version 2 alone, as hosts of today do; without controllers where
            this host has them in version 1.
    """

    def __init__(self, *, version_2: bool = False) -> None:
        self._version_2 = version_2
        self._folder = Path(f"/run/journeyman-systemd-{secrets.token_hex(4)}")
        self._folder.mkdir(mode=0o700)
        self.tree = self._folder / "tree"
        self._scratch = self._folder / "scratch"
        self._cgroups: list[Path] = []
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._leader: int | None = None

    def up(self) -> None:
        """Mounts, boots, and returns once systemd calls itself running."""
        self._mount()
        self._empty_of_host()
        self._make_cgroups()
        self._boot()

    def run(self, *command: str, user: str | None = None, check: bool = True) -> str:
        """Runs a command inside, and returns what it printed.

        Args:
            command: the program and its arguments.
            user: as whom; root if it is None.
            check: whether a failure fails the test.
        """
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        done = subprocess.run(
            [*self._enter(), *become, *command], capture_output=True, text=True, timeout=600, check=False
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout.strip()

    def python(self, *arguments: str, user: str | None = None, check: bool = True, **variables: str) -> str:
        """Runs this tree's Python inside."""
        packages = ":".join(str(INSIDE / room) for room in ("agent", "updater", "plane", "."))
        fixed = {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": "1", **variables}
        words = [f"{name}={value}" for name, value in fixed.items()]
        return self.run("env", "-C", str(INSIDE), *words, sys.executable, *arguments, user=user, check=check)

    def reboot(self) -> None:
        """A reboot in good order: process 1 goes and comes back on the same files."""
        assert self._nspawn is not None
        self.run("systemctl", "reboot", "--no-wall", check=False)
        code = self._nspawn.wait(timeout=60)
        assert code == REBOOT, f"the container ended with {code} and did not ask for a reboot"
        self._boot()

    def cut_power(self) -> None:
        """Process 1 is killed, and all others with it; then it boots again."""
        assert self._nspawn is not None
        assert self._leader is not None
        os.kill(self._leader, signal.SIGKILL)
        self._nspawn.wait(timeout=60)
        self._boot()

    def down(self) -> None:
        """Powers off and takes everything away; never raises before all of it was tried."""
        with contextlib.ExitStack() as steps:
            steps.callback(shutil.rmtree, self._folder, ignore_errors=True)
            steps.callback(self._remove_cgroups)
            for mount in (self._scratch, self.tree):
                steps.callback(_unmount, mount)
            steps.callback(self._end)

    def _mount(self) -> None:
        for path in (self.tree, self._scratch):
            path.mkdir()
        _must("mount", "-t", "tmpfs", "-o", "size=1g", "journeyman", self._scratch)
        for name in ("upper", "work"):
            (self._scratch / name).mkdir()
        layers = f"lowerdir=/,upperdir={self._scratch}/upper,workdir={self._scratch}/work"
        _must("mount", "-t", "overlay", "-o", layers, "journeyman", self.tree)

    def _empty_of_host(self) -> None:
        """None of the host's own services, generators and identities."""
        units = self.tree / "etc/systemd/system"
        shutil.rmtree(units, ignore_errors=True)
        units.mkdir(parents=True)
        generators = self.tree / "etc/systemd/system-generators"
        generators.mkdir(exist_ok=True)
        for generator in (self.tree / "usr/lib/systemd/system-generators").iterdir():
            _replace_by_link(generators / generator.name)
        for unit in UNWANTED:
            _replace_by_link(units / f"{unit}.service")
        # This Python may live in root's home, and the agent is another user.
        for folder in list(Path(sys.executable).resolve().parents)[:-1]:
            inside = self.tree / folder.relative_to("/")
            inside.chmod(inside.stat().st_mode | 0o005)
        machine = self.tree / "etc/machine-id"
        machine.unlink(missing_ok=True)
        machine.touch()

    def _make_cgroups(self) -> None:
        """One of our own in each hierarchy, below our caller's, so that containers do not meet."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            name = controllers.removeprefix("name=") or ("unified" if (CGROUPS / "unified").is_dir() else ".")
            parent = CGROUPS / name / path.strip("/")
            if parent.is_dir() and name != "cpuset":
                own = parent / self._folder.name
                own.mkdir()
                self._cgroups.append(own)

    def _boot(self) -> None:
        command = [
            "systemd-nspawn",
            "--quiet",
            "--boot",
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--console=pipe",
            "--link-journal=no",
            f"--directory={self.tree}",
            f"--machine={self._folder.name}",
            f"--bind-ro={REPOSITORY}:{INSIDE}",
            f"--bind-ro={sys.prefix}",
            "systemd.unit=multi-user.target",
        ]
        cgroups = " ".join(map(str, self._cgroups))
        script = f'for cgroup in {cgroups}; do echo $$ > $cgroup/cgroup.procs; done; exec "$@"'
        hierarchies = {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"} if self._version_2 else {}
        with (self._folder / "console").open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["/bin/sh", "-c", script, "sh", *command],
                env={**os.environ, **hierarchies},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        eventually(self._find_leader, within_seconds=60)
        eventually(self._is_running, within_seconds=60)
        # nspawn mounts the controllers of cgroup version 1 read-only, and limits would be silently ignored.
        for name in ("memory", "pids", "cpu", "cpuacct"):
            if (CGROUPS / name).is_dir() and not self._version_2:
                self.run("mount", "-o", "remount,rw,bind", str(CGROUPS / name))
        self.run("systemctl", "daemon-reexec")
        eventually(self._is_running, within_seconds=60)

    def _find_leader(self) -> bool:
        """The child of nspawn that has a mount namespace of its own and is systemd by now."""
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise AssertionError((self._folder / "console").read_text(errors="replace")[-2000:])
        for child in _children(self._nspawn.pid):
            with contextlib.suppress(OSError):
                is_own = _mounts_of(child) != _mounts_of("self")
                if is_own and Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    self._leader = child
                    return True
        return False

    def _is_running(self) -> bool:
        return self.run("systemctl", "is-system-running", check=False) in {"running", "degraded"}

    def _enter(self) -> list[str]:
        assert self._leader is not None, "the container is not up"
        return ["nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C", "--"]

    def _end(self) -> None:
        if self._nspawn is None:
            return
        if self._leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._leader, POWER_OFF)
        try:
            self._nspawn.wait(timeout=20)
        except subprocess.TimeoutExpired:
            if self._leader is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._leader, signal.SIGKILL)
            self._nspawn.kill()
            self._nspawn.wait()

    def _remove_cgroups(self) -> None:
        for own in self._cgroups:
            for cgroup in sorted(own.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    cgroup.rmdir()
            with contextlib.suppress(OSError):
                own.rmdir()


@contextlib.contextmanager
def booted(*, version_2: bool = False) -> Iterator[SystemdContainer]:
    """A container while the block lasts; see `SystemdContainer`.  Skips the test where there can be none."""
    if os.geteuid() != 0:
        pytest.skip("cannot run here: only root boots a container")
    ensure_debian_package("systemd-container", "systemd-nspawn")
    container = SystemdContainer(version_2=version_2)
    try:
        container.up()
        yield container
    finally:
        container.down()


def _must(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"cannot run here: {done.stderr.strip()}")


def _unmount(mount: Path) -> None:
    # Where there is none yet, there is nothing to do.
    subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


def _replace_by_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/null")


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [
            int(child)
            for children in Path(f"/proc/{pid}/task").glob("*/children")
            for child in children.read_text().split()
        ]
    return []


def _mounts_of(process: int | str) -> Path:
    return Path(f"/proc/{process}/ns/mnt").readlink()

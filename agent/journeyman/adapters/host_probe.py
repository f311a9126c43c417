"""The `HostProbe` port: system, memory within control groups, and the accelerator."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from journeyman.core.memory_limit import GroupMemory, group_memory, limited, meminfo
from journeyman.errors import HostError
from journeyman.ports import Memory

GO_ARCH = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# Where the Vulkan loader looks for drivers (docs/LoaderDriverInterface.md of Vulkan-Loader).
VULKAN_DRIVERS = ("etc/vulkan/icd.d", "usr/share/vulkan/icd.d", "usr/local/share/vulkan/icd.d")
# A software renderer is a Vulkan driver too, but no accelerator: lavapipe is slower than the CPU path.
SOFTWARE_DRIVERS = ("lvp_", "swrast", "llvmpipe")


class PsutilHostProbe:
    """This machine.

    Args:
        filesystem: the root of the file system; tests hand in a folder with files of another machine.
        system: `sys.platform` of the machine.
        machine: `platform.machine()` of the machine.
        search_path: where programs are looked for, as in PATH; None means the environment's.
        probe_timeout_seconds: how long a program that is asked may take.
    """

    def __init__(
        self,
        filesystem: Path = Path("/"),
        *,
        system: str = sys.platform,
        machine: str | None = None,
        search_path: str | None = None,
        probe_timeout_seconds: float = 3,
    ) -> None:
        self._filesystem = filesystem
        self._system = system
        self._machine = machine or platform.machine()
        self._search_path = search_path
        self._probe_timeout_seconds = probe_timeout_seconds

    def os(self) -> str:
        return "darwin" if self._system == "darwin" else "linux"

    def arch(self) -> str:
        return GO_ARCH.get(self._machine.lower(), self._machine.lower())

    def memory(self) -> Memory:
        """Raises HostError where the kernel does not say."""
        try:
            if self.os() == "darwin":
                return _darwin_memory()
            host = meminfo((self._filesystem / "proc/meminfo").read_text())
        except (OSError, ValueError) as error:
            raise HostError(f"the memory of this machine cannot be read: {error}") from error
        return limited(host, self._groups())

    @functools.cached_property
    def _accelerator(self) -> str:
        if self.os() == "darwin":
            return "metal" if self.arch() == "arm64" else "none"
        if self._has_cuda():
            return "cuda"
        return "vulkan" if self._has_vulkan() else "none"

    def accelerator(self) -> str:
        """Looks once; takes up to a few seconds where a driver hangs, and fractions of one elsewhere."""
        return self._accelerator

    def _groups(self) -> Iterator[GroupMemory]:
        """Our control group and its ancestors: the tightest of them counts."""
        try:
            lines = (self._filesystem / "proc/self/cgroup").read_text().splitlines()
        except OSError:
            return
        for line in lines:
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                mount, names = "sys/fs/cgroup", ("memory.max", "memory.current")
            elif "memory" in controllers.split(","):
                mount, names = "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
            else:
                continue
            yield from self._chain(self._filesystem / mount, path, *names)

    def _chain(self, mount: Path, path: str, limit: str, current: str) -> Iterator[GroupMemory]:
        parts = [part for part in path.split("/") if part not in {"", ".."}]
        for length in range(len(parts), -1, -1):
            # In a container the path may be that of the host; what is not mounted here is skipped.
            folder = mount.joinpath(*parts[:length])
            texts = [_text(folder / name) for name in (limit, current, "memory.stat")]
            found = group_memory(*texts)
            if found is not None:
                yield found

    def _has_cuda(self) -> bool:
        if (self._filesystem / "proc/driver/nvidia/version").exists():
            return True
        program = shutil.which("nvidia-smi", path=self._search_path)
        if program is None:
            return False
        try:
            # WSL has no /proc/driver/nvidia, so the program is asked; -L lists the GPUs that answer.
            shown = subprocess.run(
                [program, "-L"], capture_output=True, check=False, timeout=self._probe_timeout_seconds
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return shown.returncode == 0 and shown.stdout.startswith(b"GPU ")

    def _has_vulkan(self) -> bool:
        drivers = (
            file.name for folder in VULKAN_DRIVERS for file in (self._filesystem / folder).glob("*.json")
        )
        hardware = any(not name.startswith(SOFTWARE_DRIVERS) for name in drivers)
        return hardware and any((self._filesystem / "dev/dri").glob("renderD*"))


def _darwin_memory() -> Memory:
    # Imported here, as on Linux psutil would be 30 ms and some megabytes for nothing.
    import psutil

    facts = psutil.virtual_memory()
    return Memory(facts.total, facts.available)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

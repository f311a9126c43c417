"""The host probe on this machine, and on folders that look like other machines."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from journeyman.adapters.host_probe import PsutilHostProbe
from journeyman.errors import HostError
from journeyman.ports import Memory

MIB = 1024**2
MEMINFO = f"MemTotal: {8192 * 1024} kB\nMemAvailable: {4096 * 1024} kB\n"


def machine(folder: Path, files: dict[str, str], *, probe_timeout_seconds: float = 10) -> PsutilHostProbe:
    """A Linux machine that consists of these files."""
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return PsutilHostProbe(
        folder,
        system="linux",
        machine="x86_64",
        search_path=str(folder),
        probe_timeout_seconds=probe_timeout_seconds,
    )


def test_this_machine_answers_in_gos_vocabulary() -> None:
    """The real host has a system, an architecture, memory and an accelerator or none."""
    probe = PsutilHostProbe()
    assert probe.os() == ("darwin" if sys.platform == "darwin" else "linux")
    assert probe.arch()
    memory = probe.memory()
    assert 0 < memory.available_bytes <= memory.total_bytes
    assert probe.accelerator() in {"metal", "cuda", "vulkan", "none"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("x86_64", "amd64"),
        ("AMD64", "amd64"),
        ("aarch64", "arm64"),
        ("arm64", "arm64"),
        ("riscv64", "riscv64"),
    ],
)
def test_architectures_are_spelled_as_go_spells_them(word: str, expected: str) -> None:
    """Releases are matched by these words."""
    assert PsutilHostProbe(machine=word).arch() == expected


@pytest.mark.parametrize(("arch", "expected"), [("arm64", "metal"), ("x86_64", "none")])
def test_apple_silicon_has_metal(arch: str, expected: str) -> None:
    """An Intel Mac's GPU is none that our runtimes use."""
    assert PsutilHostProbe(system="darwin", machine=arch).accelerator() == expected


def test_memory_is_that_of_the_host_without_limits(tmp_path: Path) -> None:
    """No control group, no cap."""
    assert machine(tmp_path, {}).memory() == Memory(8192 * MIB, 4096 * MIB)


def test_a_limit_of_an_ancestor_group_counts(tmp_path: Path) -> None:
    """Version 2: the tightest `memory.max` on the way to the root."""
    groups = "sys/fs/cgroup/user.slice"
    files = {
        "proc/self/cgroup": "0::/user.slice/agent.service\n",
        f"{groups}/memory.max": str(2048 * MIB),
        f"{groups}/memory.current": str(1536 * MIB),
        f"{groups}/memory.stat": f"inactive_file {512 * MIB}\n",
        f"{groups}/agent.service/memory.max": "max",
        f"{groups}/agent.service/memory.current": str(1024 * MIB),
    }
    assert machine(tmp_path, files).memory() == Memory(2048 * MIB, 1024 * MIB)


def test_a_container_sees_its_limit_at_the_mount(tmp_path: Path) -> None:
    """The path in /proc/self/cgroup may be the host's and not exist here; version 1 is read, too."""
    files = {
        "proc/self/cgroup": "5:cpu,memory:/docker/0123\n1:name=systemd:/docker/0123\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1024 * MIB}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{256 * MIB}\n",
        "sys/fs/cgroup/memory/memory.stat": "cache 1\n",
    }
    assert machine(tmp_path, files).memory() == Memory(1024 * MIB, 768 * MIB)


def test_memory_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    """Missing is never zero and never fine."""
    with pytest.raises(HostError, match="memory of this machine"):
        PsutilHostProbe(tmp_path, system="linux").memory()


def nvidia_smi(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_nvidia_driver_means_cuda(tmp_path: Path) -> None:
    """The kernel module's own file is enough."""
    probe = machine(tmp_path, {"proc/driver/nvidia/version": "NVRM version: 570"})
    assert probe.accelerator() == "cuda"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)'", "cuda"),
        ("echo 'No devices found.'", "none"),
        ("echo 'GPU 0'; exit 9", "none"),
    ],
)
def test_nvidia_smi_must_list_a_gpu(tmp_path: Path, script: str, expected: str) -> None:
    """A program that is installed without a working driver is no accelerator."""
    nvidia_smi(tmp_path, script)
    assert machine(tmp_path, {}).accelerator() == expected


@pytest.mark.slow
def test_a_driver_that_hangs_is_given_up(tmp_path: Path) -> None:
    """Each probe has a deadline, and its answer is kept."""
    nvidia_smi(tmp_path, "exec /usr/bin/env tail -f /dev/null")
    probe = machine(tmp_path, {}, probe_timeout_seconds=0.3)
    assert probe.accelerator() == "none"
    (tmp_path / "nvidia-smi").unlink()
    assert probe.accelerator() == "none"


@pytest.mark.parametrize(
    ("driver", "node", "expected"),
    [
        ("radeon_icd.x86_64.json", "renderD128", "vulkan"),
        ("radeon_icd.x86_64.json", "card0", "none"),
        ("lvp_icd.x86_64.json", "renderD128", "none"),
    ],
)
def test_vulkan_needs_a_hardware_driver_and_a_render_node(
    tmp_path: Path, driver: str, node: str, expected: str
) -> None:
    """A software renderer, or a driver without a device, accelerates nothing."""
    files = {f"usr/share/vulkan/icd.d/{driver}": "{}", f"dev/dri/{node}": ""}
    assert machine(tmp_path, files).accelerator() == expected

"""GPUs: nvidia-smi's many words for nothing, and AMD's shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeyman.adapters.sensors.access import Text
from journeyman.adapters.sensors.amdgpu import AmdGpu
from journeyman.adapters.sensors.nvidia import NvidiaSmi
from journeyman.model.readings import Quality
from tests.support.host_tree import Programs, host_files, names_of, quality_of, value_of

NEW_HELP = 'List of valid properties\n"index"\n"temperature.gpu"\n"clocks_event_reasons.active"\n'
OLD_HELP = NEW_HELP.replace("event", "throttle")
MIB, GIB = 1 << 20, 1 << 30


def nvidia(line: str | Text, help_text: str = NEW_HELP) -> NvidiaSmi:
    return NvidiaSmi(Programs({"nvidia-smi --help-query-gpu": help_text, "nvidia-smi --query-gpu": line}))


def test_a_healthy_card() -> None:
    """Temperature in degrees, memory from MiB."""
    found = nvidia("0, 61, 12288, 4096, 0x0000000000000004\n").read()
    assert value_of(found, "gpu.temperature") == 61
    assert value_of(found, "gpu.memory_free") == 8192 * MIB
    assert (value_of(found, "gpu.slowdown"), value_of(found, "gpu.failed")) == (0, 0)


@pytest.mark.parametrize(
    "report", ["unsloth#10283", "turbofit#5", "llamastash#60", "aprender#2034", "gpud#1170"]
)
def test_shared_memory_is_not_zero_memory(report: str) -> None:
    """A GB10 prints [N/A] for its memory: the GPU stays, and its budget is the host's."""
    found = nvidia("0, 39, [N/A], [N/A], Not Active\n").read()
    assert value_of(found, "gpu.temperature") == 39
    assert quality_of(found, "gpu.memory_free") is Quality.UNSUPPORTED


@pytest.mark.parametrize("help_text", [NEW_HELP, OLD_HELP])
def test_only_fields_that_the_driver_knows_are_asked_for(help_text: str) -> None:
    """nvidia_gpu_exporter#123: one unknown field fails the whole query."""
    programs = Programs({"nvidia-smi --help": help_text, "nvidia-smi --query": "0, 50, 1000, 0, 0x48\n"})
    found = NvidiaSmi(programs).read()
    assert value_of(found, "gpu.slowdown") == 1
    assert ("clocks_event" in programs.calls[1]) is (help_text is NEW_HELP)


@pytest.mark.parametrize("cell", ["ERR!", "[Unknown Error]"])
def test_a_broken_card_says_so(cell: str) -> None:
    """An error is neither a temperature nor the lack of a sensor."""
    found = nvidia(f"0, {cell}, 12288, 0, 0x0\n").read()
    assert value_of(found, "gpu.failed") == 1
    assert quality_of(found, "gpu.temperature") is Quality.ERROR


def test_a_hung_driver_is_a_failed_gpu() -> None:
    """After the deadline the GPU is withdrawn; nobody waits for it."""
    found = nvidia(Text(None, Quality.TIMEOUT, "nvidia-smi took more than 5 s")).read()
    assert value_of(found, "gpu.failed") == 1


def test_no_driver_is_no_gpu() -> None:
    """A host without nvidia-smi has no failed GPU."""
    found = NvidiaSmi(Programs({})).read()
    assert names_of(found) == {"gpu.temperature"}
    assert quality_of(found, "gpu.temperature") is Quality.UNSUPPORTED


def amd(root: Path, vram_total: int, gtt_total: int, gtt_used: int = 0) -> AmdGpu:
    device = "sys/class/drm/card1/device"
    return AmdGpu(host_files(root, {
        f"{device}/mem_info_vram_total": str(vram_total), f"{device}/mem_info_vram_used": str(GIB // 4),
        f"{device}/mem_info_gtt_total": str(gtt_total), f"{device}/mem_info_gtt_used": str(gtt_used),
        f"{device}/hwmon/hwmon3/temp1_input": "52000", f"{device}/hwmon/hwmon3/temp2_input": "71000",
    }))  # fmt: skip


def test_strix_halo_counts_the_gtt_and_not_its_carve_out(tmp_path: Path) -> None:
    """ollama#13107, llama.cpp#19818: VRAM plus GTT plus memory would count the same bytes twice."""
    found = amd(tmp_path, GIB // 2, 64 * GIB, 4 * GIB).read()
    assert value_of(found, "gpu.shared_free") == 60 * GIB
    assert "gpu.memory_free" not in names_of(found)


def test_a_card_with_memory_of_its_own(tmp_path: Path) -> None:
    """Edge and junction are two witnesses; the worse one closes."""
    found = amd(tmp_path, 16 * GIB, 32 * GIB).read()
    assert value_of(found, "gpu.memory_free") == 15.75 * GIB
    assert sorted(one.value or 0 for one in found if one.name == "gpu.temperature") == [52, 71]

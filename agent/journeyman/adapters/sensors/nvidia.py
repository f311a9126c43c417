"""`nvidia-smi`: temperature, memory and slowdowns of NVIDIA GPUs.

One unknown field fails a whole query and names changed at driver 535, so the fields are asked for first.
"""

from __future__ import annotations

from journeyman.adapters.sensors.access import Run, Text, plausible
from journeyman.model.readings import Measurement, Quality, missing

PROGRAM = "nvidia-smi"
DEADLINE_SECONDS = 5.0
FIELDS = ("index", "temperature.gpu", "memory.total", "memory.used")
SLOWDOWN_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
# nvml.h: HW slowdown, HW thermal slowdown; software power caps are everyday life.
SLOWDOWN_BITS = 0x0000000000000008 | 0x0000000000000040
MIB = 1 << 20


class NvidiaSmi:
    """Every GPU that the driver answers for; a hung driver is a failed GPU."""

    name = "nvidia_smi"
    period_seconds = 10.0

    def __init__(self, run: Run) -> None:
        self._run = run
        self._fields: tuple[str, ...] = ()

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        if not self._fields:
            known = self._run([PROGRAM, "--help-query-gpu"], DEADLINE_SECONDS)
            if known.value is None:
                return self._failed(known)
            slowdown = next((name for name in SLOWDOWN_FIELDS if f'"{name}"' in known.value), None)
            self._fields = FIELDS if slowdown is None else (*FIELDS, slowdown)
        query = [PROGRAM, f"--query-gpu={','.join(self._fields)}", "--format=csv,noheader,nounits"]
        text = self._run(query, DEADLINE_SECONDS)
        if text.value is None:
            return self._failed(text)
        lines = [line for line in text.value.splitlines() if line.strip()]
        return [one for line in lines for one in self._gpu([cell.strip() for cell in line.split(",")])]

    def _failed(self, text: Text) -> list[Measurement]:
        if text.quality is Quality.UNSUPPORTED:
            return [missing("gpu.temperature", "celsius", self.name, text.quality, text.detail)]
        return [Measurement("gpu.failed", 1.0, "flag", self.name, detail=text.detail)]

    def _gpu(self, cells: list[str]) -> list[Measurement]:
        if len(cells) < len(self._fields):
            return [Measurement("gpu.failed", 1.0, "flag", self.name, detail=f"{cells!r}")]
        source = f"nvidia/{cells[0]}"
        failed = any("ERR!" in cell or "Unknown Error" in cell for cell in cells)
        found = [Measurement("gpu.failed", float(failed), "flag", source)]
        celsius = _number(cells[1])
        if celsius is None:
            found.append(missing("gpu.temperature", "celsius", source, _why(cells[1]), cells[1]))
        else:
            found.append(plausible("gpu.temperature", celsius, "celsius", source, low=-20, high=125))
        found += self._memory(source, _number(cells[2]), _number(cells[3]), cells[2])
        if len(cells) > len(FIELDS):
            found.append(_slowdown(source, cells[len(FIELDS)]))
        return found

    def _memory(self, source: str, total: float | None, used: float | None, cell: str) -> list[Measurement]:
        """GPUs that share the host's memory (GB10, Grace, Jetson) have no number of their own: not zero."""
        if total is None or used is None or total <= 0:
            detail = f"{cell}: memory is shared with the host"
            return [missing("gpu.memory_free", "bytes", source, Quality.UNSUPPORTED, detail)]
        return [Measurement("gpu.memory_free", max(0.0, total - used) * MIB, "bytes", source)]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _why(cell: str) -> Quality:
    return Quality.ERROR if "ERR" in cell or "Error" in cell else Quality.UNSUPPORTED


def _slowdown(source: str, cell: str) -> Measurement:
    try:
        bits = int(cell, 16)
    except ValueError:
        return missing("gpu.slowdown", "flag", source, _why(cell), cell)
    return Measurement("gpu.slowdown", float(bool(bits & SLOWDOWN_BITS)), "flag", source, detail=cell)

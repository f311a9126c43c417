"""/sys/class/drm: temperature and memory of AMD GPUs, also of those that share the host's memory."""

from __future__ import annotations

import re

from journeyman.adapters.sensors.access import HostFiles, no_number, number, plausible
from journeyman.model.readings import Measurement, Quality, missing

FOLDER = "sys/class/drm"
# A GPU whose carve-out is smaller than this works in system memory (Strix Halo and other APUs).
UNIFIED_BELOW_BYTES = 4 << 30


class AmdGpu:
    """Each card: edge or junction temperature, whichever is worse, and what it can still allocate."""

    name = "amdgpu"
    period_seconds = 10.0

    def __init__(self, files: HostFiles) -> None:
        self._files = files

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        cards = [name for name in self._files.names(FOLDER) if re.fullmatch(r"card\d+", name)]
        found = [one for card in cards for one in self._card(card)]
        return found or [missing("gpu.temperature", "celsius", self.name, Quality.UNSUPPORTED, "no AMD GPU")]

    def _card(self, card: str) -> list[Measurement]:
        device = f"{FOLDER}/{card}/device"
        total = number(self._files.constant(f"{device}/mem_info_vram_total"))
        if total is None:
            return []
        return [*self._heat(card, device), self._memory(card, device, total)]

    def _heat(self, card: str, device: str) -> list[Measurement]:
        found = []
        for folder in self._files.names(f"{device}/hwmon"):
            for stem in ("temp1", "temp2"):
                text = self._files.text(f"{device}/hwmon/{folder}/{stem}_input")
                celsius = number(text, 0.001)
                source = f"amdgpu/{card}/{stem}"
                if celsius is not None:
                    found.append(plausible("gpu.temperature", celsius, "celsius", source, low=-20, high=125))
                elif text.quality is not Quality.UNSUPPORTED:
                    found.append(no_number("gpu.temperature", "celsius", source, text))
        return found

    def _memory(self, card: str, device: str, vram_total: float) -> Measurement:
        """Own memory where there is enough; else what is left of the GTT, which is the host's memory."""
        kind = "gtt" if vram_total < UNIFIED_BELOW_BYTES else "vram"
        total = number(self._files.text(f"{device}/mem_info_{kind}_total"))
        used = number(self._files.text(f"{device}/mem_info_{kind}_used"))
        name = "gpu.shared_free" if kind == "gtt" else "gpu.memory_free"
        if total is None or used is None:
            return missing(name, "bytes", f"amdgpu/{card}", Quality.ERROR, f"no {kind} numbers")
        return Measurement(name, max(0.0, total - used), "bytes", f"amdgpu/{card}", detail=kind)

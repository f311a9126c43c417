"""The readings of the last 24 hours as a ring of two files, for `journeyman gates replay`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from journeyman.core.gates.report import reading_json
from journeyman.model.readings import Reading

log = structlog.get_logger(__name__)

RING_SECONDS = 24 * 3600.0
RING_BYTES = 16 * 1024 * 1024


class GateTrace:
    """Appends what is new of each sweep; the older half is `<name>.1` and goes when the newer one is full.

    Losing it costs nothing but a look back, so it is neither synced nor an error where it cannot be written.

    Args:
        path: the newer half.
        head: the first line of each half: host class and work directories.
        ring_seconds: how far back the two halves reach at least half of, and at most.
        ring_bytes: what both halves may take.
    """

    def __init__(
        self,
        path: Path,
        head: Mapping[str, Any],
        *,
        ring_seconds: float = RING_SECONDS,
        ring_bytes: int = RING_BYTES,
    ) -> None:
        self._path = path
        self._head = json.dumps(dict(head))
        self._half_seconds = ring_seconds / 2
        self._half_bytes = ring_bytes // 2
        self._begun: float | None = None
        self._seen: dict[str, float] = {}

    def append(self, readings: Sequence[Reading], *, boot_now: float, slept_seconds: float = 0.0) -> None:
        """Adds one line with the readings that were observed since the last one."""
        if not any(self._seen.get(one.key) != one.boot_seconds for one in readings) and not slept_seconds:
            return
        try:
            if self._is_full(boot_now):
                self._turn(boot_now)
            fresh = [one for one in readings if self._seen.get(one.key) != one.boot_seconds]
            line: dict[str, Any] = {"t": round(boot_now, 3)}
            if slept_seconds:
                line["slept"] = round(slept_seconds, 3)
            line["readings"] = [reading_json(one, boot_now) for one in fresh]
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            self._seen = {one.key: one.boot_seconds for one in readings}
        except OSError as error:
            log.warning("gate_trace_not_written", error=str(error))

    def _is_full(self, boot_now: float) -> bool:
        if self._begun is None:
            self._go_on(boot_now)
        if self._begun is None:
            return True
        size = self._path.stat().st_size if self._path.exists() else 0
        return boot_now - self._begun >= self._half_seconds or size >= self._half_bytes

    def _go_on(self, boot_now: float) -> None:
        """Goes on in the file of the last agent, with a head line that says that this is another life."""
        if self._path.exists():
            with self._path.open("a", encoding="utf-8") as file:
                file.write(self._head + "\n")
            self._begun = boot_now

    def _turn(self, boot_now: float) -> None:
        """Begins a new half.  It starts with all readings, so that each half can be replayed alone."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._path.exists():
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        self._path.write_text(self._head + "\n", encoding="utf-8")
        self._begun = boot_now
        self._seen = {}

"""`gates.json`: what the gates say, for the CLI and the updater, with the time of its writing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from journeyman.core.gates.engine import Engine
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.rules import GateSpec, Rule
from journeyman.core.gates.verdict import GateVerdict, Verdict
from journeyman.model.readings import Quality, Reading

FORMAT = 1


def report(
    engine: Engine, verdict: Verdict, host: HostClass, *, boot_now: float, wall_now: datetime
) -> dict[str, Any]:
    """The document.  Times of the boot-time clock are told as ages, as no reader shares that clock."""
    specs = {spec.name: spec for spec in engine.specs}
    return {
        "format": FORMAT,
        "writtenAt": wall_now.astimezone(UTC).isoformat(timespec="milliseconds"),
        "hostClass": host.value,
        "admits": verdict.admits,
        "level": verdict.level.name.lower(),
        "why": verdict.explanation(),
        "retryAfterSeconds": verdict.retry_after_seconds(),
        "gates": [_gate(gate, specs.get(gate.name), boot_now) for gate in verdict.gates],
        "readings": [reading_json(reading, boot_now) for reading in engine.readings],
    }


def reading_json(reading: Reading, boot_now: float) -> dict[str, Any]:
    """One reading; its age stands for its time."""
    return {
        "name": reading.name,
        "value": reading.value,
        "unit": reading.unit,
        "source": reading.source,
        "quality": reading.quality.value,
        "ageSeconds": round(reading.age_seconds(boot_now), 1),
        "staleAfterSeconds": reading.stale_after_seconds,
        "detail": reading.detail,
        "overSeconds": reading.over_seconds,
    }


def reading_from_json(value: dict[str, Any], *, boot_now: float, wall_now: datetime) -> Reading:
    """Reads what `reading_json` wrote; missing fields have the values of a hand-made trace.

    Raises:
        ValueError: a field has a wrong type, or the quality is none.
    """
    number = value.get("value")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
        raise ValueError(f"value {number!r} is no number")
    quality = Quality(value.get("quality", "ok" if number is not None else "unsupported"))
    if number is None and quality is Quality.OK:
        raise ValueError("a missing value is not ok")
    age = float(value.get("ageSeconds", 0.0))
    return Reading(
        name=str(value["name"]),
        value=None if number is None else float(number),
        unit=str(value.get("unit", "")),
        source=str(value.get("source", "trace")),
        quality=quality,
        observed_at=wall_now,
        boot_seconds=boot_now - age,
        stale_after_seconds=float(value.get("staleAfterSeconds", 60.0)),
        detail=str(value.get("detail", "")),
        over_seconds=float(value.get("overSeconds", 0.0)),
    )


def _gate(gate: GateVerdict, spec: GateSpec | None, boot_now: float) -> dict[str, Any]:
    return {
        "name": gate.name,
        "phase": gate.phase.value,
        "level": gate.level.name.lower(),
        "sinceSeconds": round(boot_now - gate.since, 1),
        "reasons": [{"code": reason.code, "message": reason.message} for reason in gate.reasons],
        "scope": gate.scope,
        "retryAfterSeconds": gate.retry_after_seconds,
        "until": gate.until,
        "forcedUntil": None if gate.forced_until is None else gate.forced_until.isoformat(),
        "marks": [] if spec is None else [_marks(rule) for rule in spec.rules],
    }


def _marks(rule: Rule) -> dict[str, Any]:
    return {
        "signal": rule.signal,
        "worse": rule.worse.value,
        "close": [{"level": rung.level.name.lower(), "mark": rung.mark, "forSeconds": rung.for_seconds}
                  for rung in rule.rungs],
        "open": rule.open_mark,
    }  # fmt: skip

"""Runs a recorded or hand-made trace through the gates and says what would have happened.

A trace is JSON lines.  A recorded line holds readings as in `gates.json`; a hand-made one may say
`{"t": 30, "set": {"thermal.cpu_margin": 8}}`, and `{"t": 60, "slept": 3600}` for a sleep that ended then.
A line without a time begins another life of the agent and names the host:
`{"hostClass": "linux-laptop", "workDirectories": ["root"]}`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from journeyman.core.gates.engine import Transition, started, sweep
from journeyman.core.gates.host_class import HostClass
from journeyman.core.gates.marks import Marks
from journeyman.core.gates.report import reading_from_json
from journeyman.core.gates.sleep import Clocks
from journeyman.core.gates.specs import gate_specs
from journeyman.errors import UsageError
from journeyman.model.readings import Reading

# Traces have no wall clock of their own that anything depends on.
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Replayed:
    """A transition, at a time of the trace."""

    at_seconds: float
    transition: Transition


def replay(lines: Iterable[str], marks: Marks, host: HostClass | None = None) -> Iterator[Replayed]:
    """Yields each transition that the trace leads to.

    Args:
        lines: the trace.
        marks: the settings.
        host: the class of the host; None takes it from the trace, or a Linux server.

    Raises:
        UsageError: a line is not of a trace; its number is in the message.
    """
    for life in _lives(list(_entries(lines))):
        yield from _replay_life(life, marks, host)


Entry = tuple[int, dict[str, Any]]  # The line's number and its object.


def _lives(entries: list[Entry]) -> Iterator[list[Entry]]:
    """The trace of each agent: a line without a time begins another one."""
    life: list[Entry] = []
    for entry in entries:
        if "t" not in entry[1] and "hostClass" in entry[1] and life:
            yield life
            life = []
        life.append(entry)
    if life:
        yield life


def _replay_life(entries: list[Entry], marks: Marks, host: HostClass | None) -> Iterator[Replayed]:
    head = {} if "t" in entries[0][1] else entries[0][1]
    entries = entries[1:] if head else entries
    if not entries:
        return
    readings: dict[str, Reading] = {}
    clocks = Clocks(_time(entries[0]), 0.0)
    engine = started(_specs(head, marks, host, entries), clocks.boot)
    for entry in entries:
        clocks = _moved(clocks, entry)
        for reading in _readings(entry, clocks.boot):
            readings[reading.key] = reading
        engine, transitions = sweep(engine, readings.values(), marks, clocks)
        for transition in transitions:
            yield Replayed(clocks.boot, transition)


def _entries(lines: Iterable[str]) -> Iterator[Entry]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UsageError(f"line {number} of the trace is no JSON: {error}") from error
        if not isinstance(value, dict):
            raise UsageError(f"line {number} of the trace is no JSON object")
        yield number, value


def _specs(head: Mapping[str, Any], marks: Marks, host: HostClass | None, entries: list[Entry]) -> Any:
    try:
        found = host or HostClass(head.get("hostClass", HostClass.LINUX_SERVER))
    except ValueError as error:
        raise UsageError(f"the trace names an unknown host class: {error}") from error
    names = {reading.name for entry in entries for reading in _readings(entry, 0.0)}
    labels = head.get("workDirectories") or sorted(
        {name.split(".")[1] for name in names if name.startswith("disk.") and name.endswith(".free")}
    )
    has_gpu = any(name.startswith("gpu.") for name in names)
    return gate_specs(found, marks, labels, gpu=has_gpu, link="network.metered" in names)


def _time(entry: Entry) -> float:
    number, value = entry
    time = value.get("t")
    if isinstance(time, bool) or not isinstance(time, int | float):
        raise UsageError(f"line {number} of the trace has no time t in seconds")
    return float(time)


def _moved(clocks: Clocks, entry: Entry) -> Clocks:
    number, value = entry
    boot = _time(entry)
    if boot < clocks.boot:
        raise UsageError(f"line {number} of the trace goes back in time", "Sort its lines by t.")
    slept = value.get("slept", 0)
    if isinstance(slept, bool) or not isinstance(slept, int | float):
        raise UsageError(f"line {number} of the trace: slept is no number of seconds")
    return Clocks(boot, clocks.monotonic + max(0.0, boot - clocks.boot - slept))


def _readings(entry: Entry, boot: float) -> list[Reading]:
    number, value = entry
    # A hand-made value holds until another line changes it; null is how a trace says silence.
    given = [
        {"name": name, "value": one, "staleAfterSeconds": float("inf")}
        for name, one in dict(value.get("set", {})).items()
    ]
    try:
        return [
            reading_from_json(one, boot_now=boot, wall_now=EPOCH + timedelta(seconds=boot))
            for one in [*given, *value.get("readings", [])]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"line {number} of the trace holds a reading that is none: {error}") from error

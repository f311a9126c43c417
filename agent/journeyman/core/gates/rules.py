"""What a gate looks at: signals, their marks, and how long a mark must be passed before it counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from journeyman.model.readings import Quality, Reading

Readings = Mapping[str, Sequence[Reading]]  # By signal; one reading a source.


class Level(IntEnum):
    """What a gate asks of the host; each level includes those below it."""

    OPEN = 0
    HOLD = 1  # No new work.
    SUSPEND = 2  # Running work stands still, for a bounded time.
    DRAIN = 3  # Running work saves what it has and ends.
    KILL = 4  # Running work ends now.


class Worse(StrEnum):
    """In which direction a signal gets worse."""

    HIGH = "high"
    LOW = "low"


@dataclass(frozen=True)
class Rung:
    """One mark of a rule.

    Attributes:
        level: what the gate asks for once the mark has been passed for long enough.
        mark: in the unit of the signal; a value equal to the mark has not passed it.
        for_seconds: how long it must be passed without a break; 0 is critical and skips the wait.
        reason: CamelCase, one of a finite set.
    """

    level: Level
    mark: float
    for_seconds: float
    reason: str


@dataclass(frozen=True)
class Rule:
    """One signal of a gate.

    Attributes:
        signal: its name; every source of it is a witness, and the worst one counts for closing.
        worse: the direction in which it gets worse.
        rungs: marks, from the mildest.
        open_mark: to open, every witness must be at this mark or on the good side of it.
        open_signal: the signal that `open_mark` is for, where it is another one.
    """

    signal: str
    worse: Worse
    rungs: tuple[Rung, ...]
    open_mark: float
    open_signal: str = ""

    def passed(self, rung: Rung, value: float) -> bool:
        return value > rung.mark if self.worse is Worse.HIGH else value < rung.mark

    def agrees_to_open(self, value: float) -> bool:
        return value <= self.open_mark if self.worse is Worse.HIGH else value >= self.open_mark


@dataclass(frozen=True)
class GateSpec:
    """A gate.

    Attributes:
        name: `thermal`, `power`, `memory`, `disk`, `gpu`, `user`, `processes`, `sleep`, `metered`.
        rules: any of them closes; all of them must agree to open.
        vital: groups of signals; the gate knows enough if each group has one known reading.
        open_dwell_seconds: how long all must agree before it opens.
        unknown_level: OPEN or HOLD: what it asks for while it does not know enough.
        unknown_after_seconds: how long it may know too little before that counts.
        until: what a person waits for, such as `cool` or `plugged-in`.
        scope: `all`, or the capability that this gate alone withdraws, such as `gpu`, or `fetch`.
    """

    name: str
    rules: tuple[Rule, ...]
    vital: tuple[tuple[str, ...], ...]
    open_dwell_seconds: float
    unknown_level: Level = Level.HOLD
    unknown_after_seconds: float = 0.0
    until: str = ""
    scope: str = "all"


def indexed(readings: Iterable[Reading], boot_now: float) -> dict[str, list[Reading]]:
    """The readings by signal, each as it counts at this moment."""
    by_signal: dict[str, list[Reading]] = {}
    for reading in readings:
        by_signal.setdefault(reading.name, []).append(reading.at(boot_now))
    return by_signal


def known(readings: Readings, signal: str) -> list[Reading]:
    return [reading for reading in readings.get(signal, ()) if reading.known]


def knows_enough(spec: GateSpec, readings: Readings) -> bool:
    return all(any(known(readings, signal) for signal in group) for group in spec.vital)


def unknown_reason(spec: GateSpec, readings: Readings) -> tuple[str, str]:
    """Why the gate does not know enough: a reason code, and which signal it misses."""
    for group in spec.vital:
        if any(known(readings, signal) for signal in group):
            continue
        found = [reading for signal in group for reading in readings.get(signal, ())]
        quality = min(
            (reading.quality for reading in found), key=_SEVERITY.index, default=Quality.UNSUPPORTED
        )
        return _UNKNOWN_REASONS[quality], f"{' or '.join(group)} is {quality.value}"
    return "SensorUnsupported", ""


# The quality that tells most about what to mend comes first.
_SEVERITY = [
    Quality.STALE, Quality.TIMEOUT, Quality.SUSPECT, Quality.ERROR, Quality.DENIED, Quality.UNSUPPORTED,
    Quality.OK,
]  # fmt: skip
_UNKNOWN_REASONS = {
    Quality.STALE: "SensorStale",
    Quality.TIMEOUT: "SensorTimeout",
    Quality.SUSPECT: "SensorFrozen",
    Quality.ERROR: "SensorError",
    Quality.DENIED: "SensorDenied",
    Quality.UNSUPPORTED: "SensorUnsupported",
    Quality.OK: "SensorUnsupported",
}

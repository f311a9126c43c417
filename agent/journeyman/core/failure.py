"""Why a job failed: one class out of a fixed list, with its evidence and how sure it is.

The rules stand in a fixed order, and the first that matches counts: what we did ourselves, then who else may
have killed it, then what it complained about.  A kill by somebody else is not the job's fault, and whoever
reads a night of receipts has to be able to count these apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from journeyman.core.gates.host_class import HostClass
from journeyman.model.readings import Reading
from journeyman_updater.contract import WorkerExit

SIGKILL = 9
# Less than this is what a job that ran into a full disk leaves.
FULL_DISK_PERCENT = 1.0
# With more memory than this left, Android did not kill for memory.
PHONE_MEMORY_PERCENT = 12.0
NO_SPACE = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded", re.IGNORECASE)


class Confidence(StrEnum):
    """How sure a class is."""

    HIGH = "high"
    LOW = "low"


@dataclass(frozen=True)
class Kills:
    """Counters of the kernel since its boot; None where nobody tells, as on a phone.

    Attributes:
        host: processes that the kernel has killed for memory, on the whole host.
        group: those of our own control group.
        group_limit: how often our own group had nothing left within its limit.
    """

    host: int | None = None
    group: int | None = None
    group_limit: int | None = None


@dataclass(frozen=True)
class Surroundings:
    """The host at one moment, as far as it may explain the end of a job.

    Attributes:
        host: its class.
        kills: counters of the kernel.
        slept_seconds: all sleep of the host since the agent began.
        available_memory_percent: of its memory; None for unknown.
        free_disk_percent: of the fullest work directory; None for unknown.
        metadata_full: whether a btrfs of ours cannot grow its metadata.
    """

    host: HostClass
    kills: Kills = Kills()
    slept_seconds: float = 0.0
    available_memory_percent: float | None = None
    free_disk_percent: float | None = None
    metadata_full: bool = False


@dataclass(frozen=True)
class End:
    """How a job ended, as far as it is known.

    Attributes:
        ended: what its shim saw; None where nobody saw it.
        stopped_by: why we ended it, or an empty string.
        error: why it could not be started, or an empty string.
        last_words: the end of its stderr.
        oomd: what systemd-oomd said of killing something of ours, or an empty string.
    """

    ended: WorkerExit | None
    stopped_by: str = ""
    error: str = ""
    last_words: str = ""
    oomd: str = ""


@dataclass(frozen=True)
class Failure:
    """Why it failed.

    Attributes:
        code: the class.
        confidence: how sure that is.
        evidence: what speaks for it, for people.
    """

    code: str
    confidence: Confidence = Confidence.HIGH
    evidence: tuple[str, ...] = ()


class Witness(Protocol):
    """Who looks at the host when a job begins and when it has ended."""

    def surroundings(self) -> Surroundings:
        """The host now.  Cheap, and never raises."""
        ...

    def oomd(self, since: str) -> str:
        """What systemd-oomd has said of killing something of ours since then (RFC 3339), or an empty string.

        Blocks for some seconds at most; never raises.
        """
        ...


def why_it_ended(end: End, before: Surroundings, after: Surroundings) -> Failure:
    """The class of an end; `Succeeded` for one that is none.

    Args:
        end: how the job ended.
        before: the host when it was started, or adopted.
        after: the host when it had ended.
    """
    if end.error:
        return Failure("SpawnFailed", evidence=(end.error,))
    if end.ended is not None and end.ended.succeeded:
        return Failure("Succeeded")
    if end.stopped_by and end.ended is not None:
        return Failure(end.stopped_by)
    rules: list[Callable[[End, Surroundings, Surroundings], Failure | None]] = []
    if end.ended is None or end.ended.signal == SIGKILL:
        rules += [_oomd, _out_of_memory, _killed_by_the_phone]
    if end.ended is not None:
        rules.append(_no_space)
    rules.append(_slept)
    found = (rule(end, before, after) for rule in rules)
    return next((one for one in found if one is not None), _as_it_is(end.ended))


def oomd_words(journal: str, unit: str) -> str:
    """The last line in which systemd-oomd says that it killed something of a unit, or an empty string.

    Args:
        journal: lines of systemd-oomd.
        unit: the name of our unit, which is part of the path of the group that it killed.
    """
    killed = [line.strip() for line in journal.splitlines() if "Killed /" in line and unit in line]
    return killed[-1] if killed else ""


def surroundings_of(
    readings: Iterable[Reading], host: HostClass, kills: Kills, slept_seconds: float
) -> Surroundings:
    """What the readings of the last sweep, each judged for its age, say of this moment."""
    values: dict[str, list[float]] = {}
    for one in readings:
        if one.known and one.value is not None:
            values.setdefault(one.name, []).append(one.value)
    shares = [
        min(free) / max(values[total]) * 100
        for name, free in values.items()
        if name.startswith("disk.") and name.endswith(".free")
        and max(values.get(total := f"{name.removesuffix('.free')}.total", [0]))
    ]  # fmt: skip
    stuck = any(max(found) > 0 for name, found in values.items() if name.endswith(".metadata_full"))
    return Surroundings(
        host, kills, slept_seconds,
        min(values.get("memory.available_percent", []), default=None), min(shares, default=None), stuck,
    )  # fmt: skip


def _oomd(end: End, _before: Surroundings, _after: Surroundings) -> Failure | None:
    return Failure("OOMHost", evidence=(end.oomd,)) if end.oomd else None


def _out_of_memory(_end: End, before: Surroundings, after: Surroundings) -> Failure | None:
    """Whose memory ran out: a kill in our group is its own limit's exactly if that limit was hit, too."""
    group = _grown(before.kills.group, after.kills.group)
    limit = _grown(before.kills.group_limit, after.kills.group_limit)
    host = _grown(before.kills.host, after.kills.host)
    if group and (limit or limit is None):
        evidence = (f"{group} killed in our control group", f"its limit was hit {limit or 'perhaps'} times")
        return Failure("OOMOwnLimit", Confidence.HIGH if limit else Confidence.LOW, evidence)
    if group:
        return Failure("OOMHost", evidence=(f"{group} killed in our control group, within its limit",))
    if host:
        # The counter does not say whom it was.
        return Failure("OOMHost", Confidence.LOW, (f"the kernel killed {host} for memory meanwhile",))
    return None


def _killed_by_the_phone(_end: End, _before: Surroundings, after: Surroundings) -> Failure | None:
    """Android and macOS tell nobody whom they have killed, so what is left of the memory has to tell."""
    left = after.available_memory_percent
    said = "memory left is unknown" if left is None else f"{left:.0f} % of memory left"
    if after.host.is_phone:
        plenty = left is not None and left >= PHONE_MEMORY_PERCENT
        code = "PhantomKilled" if plenty else "LMKD"
        return Failure(code, Confidence.LOW, ("killed, not by us", said))
    if after.host.is_mac and left is not None and left < PHONE_MEMORY_PERCENT:
        return Failure("Jetsam", Confidence.LOW, ("killed, not by us", said))
    return None


def _no_space(end: End, _before: Surroundings, after: Surroundings) -> Failure | None:
    code = "MetadataFull" if after.metadata_full else "DiskFull"
    said = NO_SPACE.search(end.last_words)
    if said is not None:
        return Failure(code, evidence=(f"its stderr says {said[0]!r}",))
    free = after.free_disk_percent
    if after.metadata_full or (free is not None and free < FULL_DISK_PERCENT):
        left = "unknown" if free is None else f"{free:.1f} %"
        return Failure(code, Confidence.LOW, (f"free on the fullest work directory: {left}",))
    return None


def _slept(_end: End, before: Surroundings, after: Surroundings) -> Failure | None:
    slept = after.slept_seconds - before.slept_seconds
    if slept <= 0:
        return None
    return Failure("HostSlept", Confidence.LOW, (f"the host slept for {slept:.0f} s meanwhile",))


def _as_it_is(ended: WorkerExit | None) -> Failure:
    if ended is None:
        return Failure("Unknown", Confidence.LOW, ("nobody saw its end",))
    return Failure("ExitNonZero" if ended.code is not None else f"Signal{ended.signal}")


def _grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)

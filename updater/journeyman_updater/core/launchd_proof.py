"""Which start launchd shows: what is remembered before a restart, and whether what is seen later is new.

`runs` counts spawns within one registration and begins again with the next one, so there are two proofs:

- the same registration: another pid, `runs` up, and a start that is not older;
- another registration, which launchd makes only after the old one is gone: another pid and such a start.

Registrations are told apart by the digest and the mark in the environment of our property lists.  Anything
that the text does not say is in doubt, and in doubt there is no proof.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from journeyman_updater.contract import ProcessIdentity


@dataclass(frozen=True)
class Sight:
    """One look at the job.

    Attributes:
        boot_id: of the host.
        domain: where it is registered, such as `system`; None if nowhere.
        runs: spawns so far, or None.
        unit: which of our property lists is in memory, or None.
    """

    boot_id: str
    domain: str | None
    runs: int | None = None
    unit: str | None = None

    def to_sign(self) -> str:
        """The text for `RestartToken.sign`."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_sign(cls, sign: str) -> Sight | None:
        """What was remembered; None if that cannot be read."""
        try:
            return cls(**json.loads(sign))
        except (ValueError, TypeError):
            return None


def is_new_start(
    before: Sight,
    old: ProcessIdentity | None,
    now: Sight,
    new: ProcessIdentity,
    *,
    seen_absent: bool,
) -> bool:
    """Whether `new` was started by launchd after `before` was remembered.

    Args:
        before: the registration as it was.
        old: the process that ran then, if any.
        now: the registration as it is.
        new: the process that runs now.
        seen_absent: whether we ourselves saw the old registration gone, and registered the job anew.
    """
    if now.boot_id != before.boot_id:
        return True
    if old is not None and (new.pid == old.pid or not _is_not_older(new, old)):
        return False
    return seen_absent or _is_other_registration(before, now) or _has_run_more(before, now)


def _is_other_registration(before: Sight, now: Sight) -> bool:
    if before.domain is None:
        return True
    return before.unit is not None and now.unit is not None and before.unit != now.unit


def _has_run_more(before: Sight, now: Sight) -> bool:
    if before.domain != now.domain or before.runs is None or now.runs is None:
        return False
    return now.runs > before.runs


def _is_not_older(new: ProcessIdentity, old: ProcessIdentity) -> bool:
    """Equal is not older: macOS tells starts by the second."""
    first, second = _ordinal(old.start_time), _ordinal(new.start_time)
    return first is not None and second is not None and second >= first


def _ordinal(start_time: str) -> float | None:
    """Clock ticks, or what `ps -o lstart` prints: `Mon Nov 30 11:12:29 2026`."""
    try:
        ticks = float(start_time)
    except ValueError:
        try:
            found = datetime.strptime(start_time, "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        except ValueError:
            return None
        return found.timestamp()
    return ticks if math.isfinite(ticks) else None

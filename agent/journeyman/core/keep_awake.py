"""Whether the host is to be kept awake, and what a sleep would cut.

Only while work runs, on power, with the lid open: nobody wants a hot bag or an empty phone.  No assertion
keeps a Mac with a closed lid awake, so none is promised then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from journeyman.core.gates.conditions import Told
from journeyman.model.meta import ConditionStatus
from journeyman.model.readings import Reading

SLEEP_RISK = "SleepRisk"


class Risk(StrEnum):
    """Why a sleep may cut the work that runs; the reason of the condition."""

    NONE = "NoRisk"
    ON_BATTERY = "OnBattery"
    POWER_UNKNOWN = "PowerUnknown"
    LID_CLOSED = "LidClosed"
    NOT_HELD = "AssertionNotHeld"


MESSAGES = {
    Risk.NONE: "no work runs that a sleep would cut",
    Risk.ON_BATTERY: "work runs on battery, so the host is not kept awake",
    Risk.POWER_UNKNOWN: "work runs and nobody knows whether on power, so the host is not kept awake",
    Risk.LID_CLOSED: "work runs behind a closed lid, where nothing keeps the host awake",
    Risk.NOT_HELD: "work runs and the host does not take our request to keep it awake",
}


@dataclass(frozen=True)
class Wish:
    """Whether the host is to stay awake, and the risk that stays if it is not."""

    awake: bool
    risk: Risk = Risk.NONE


def wish(readings: Sequence[Reading], *, busy: bool, has_battery: bool) -> Wish:
    """What to ask of the host.

    Args:
        readings: those of the last sweep, as they count now.
        busy: whether work runs.
        has_battery: whether the host has one; the others are always on power.
    """
    if not busy:
        return Wish(awake=False)
    if _says(readings, "sleep.lid_closed"):
        return Wish(awake=False, risk=Risk.LID_CLOSED)
    on_battery = _says(readings, "power.on_battery")
    if on_battery or (on_battery is None and has_battery):
        return Wish(awake=False, risk=Risk.ON_BATTERY if on_battery else Risk.POWER_UNKNOWN)
    return Wish(awake=True)


def sleep_risk(found: Wish, *, is_held: bool) -> Told:
    """The condition: True while a sleep may cut work.

    Args:
        found: what is asked of the host.
        is_held: whether the host does it.
    """
    risk = Risk.NOT_HELD if found.awake and not is_held else found.risk
    status = ConditionStatus.FALSE if risk is Risk.NONE else ConditionStatus.TRUE
    return Told(SLEEP_RISK, status, risk.value, MESSAGES[risk])


def _says(readings: Sequence[Reading], name: str) -> bool | None:
    """What the worst known source says; None where none is known."""
    known = [bool(one.value) for one in readings if one.name == name and one.known]
    return any(known) if known else None

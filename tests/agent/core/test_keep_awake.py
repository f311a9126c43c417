"""When a host is kept awake, and what is said where it is not."""

from __future__ import annotations

import pytest

from journeyman.core.keep_awake import Risk, Wish, sleep_risk, wish
from journeyman.model.meta import ConditionStatus
from journeyman.model.readings import Reading
from tests.support.gates import reading

PLUGGED, UNPLUGGED = reading("power.on_battery", 0.0), reading("power.on_battery", 1.0)
LID_OPEN, LID_CLOSED = reading("sleep.lid_closed", 0.0), reading("sleep.lid_closed", 1.0)
SILENT = reading("power.on_battery", None)


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([PLUGGED], Wish(awake=True), id="plugged-in"),
        pytest.param([PLUGGED, LID_OPEN], Wish(awake=True), id="lid-open"),
        pytest.param([UNPLUGGED], Wish(awake=False, risk=Risk.ON_BATTERY), id="on-battery"),
        pytest.param([PLUGGED, UNPLUGGED], Wish(awake=False, risk=Risk.ON_BATTERY), id="sources-disagree"),
        pytest.param([PLUGGED, LID_CLOSED], Wish(awake=False, risk=Risk.LID_CLOSED), id="lid-closed"),
        pytest.param([], Wish(awake=False, risk=Risk.POWER_UNKNOWN), id="no-sensor"),
        pytest.param([SILENT], Wish(awake=False, risk=Risk.POWER_UNKNOWN), id="sensor-silent"),
    ],
)
def test_only_on_power_and_with_the_lid_open(readings: list[Reading], expected: Wish) -> None:
    """The worst source counts, and nothing unknown counts as power."""
    assert wish(readings, busy=True, has_battery=True) == expected


def test_without_work_nothing_is_asked_for() -> None:
    """An idle host sleeps when it likes, and that is no risk."""
    idle = wish([PLUGGED, LID_OPEN], busy=False, has_battery=True)
    assert idle == Wish(awake=False)
    assert sleep_risk(idle, is_held=False).status is ConditionStatus.FALSE


def test_a_host_without_a_battery_is_on_power() -> None:
    """A Mac mini has nobody who could say so."""
    assert wish([], busy=True, has_battery=False).awake


@pytest.mark.parametrize(
    ("found", "is_held", "status", "reason"),
    [
        (Wish(awake=True), True, ConditionStatus.FALSE, "NoRisk"),
        (Wish(awake=True), False, ConditionStatus.TRUE, "AssertionNotHeld"),
        (Wish(awake=False, risk=Risk.LID_CLOSED), False, ConditionStatus.TRUE, "LidClosed"),
        # A request of before that is still on its way out is no protection.
        (Wish(awake=False, risk=Risk.ON_BATTERY), True, ConditionStatus.TRUE, "OnBattery"),
    ],
)
def test_the_risk_is_said_as_it_is(
    found: Wish, *, is_held: bool, status: ConditionStatus, reason: str
) -> None:
    """No promise without an assertion that is in force."""
    told = sleep_risk(found, is_held=is_held)
    assert (told.type, told.status, told.reason) == ("SleepRisk", status, reason)

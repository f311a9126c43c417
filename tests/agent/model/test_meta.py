from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from journeyman.errors import InvalidError
from journeyman.model.meta import (
    Condition,
    ConditionStatus,
    ObjectMeta,
    find_condition,
    format_time,
    parse_time,
    with_condition,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def condition(kind: str, status: ConditionStatus, at: datetime, reason: str = "Because") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message="", last_transition_time=at)


def test_a_time_is_written_in_whole_seconds_of_utc() -> None:
    """The wire form of a time has no fraction, is in UTC and ends in Z."""
    berlin = datetime(2026, 3, 1, 13, 0, 0, 999_999, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(berlin) == "2026-03-01T12:00:00Z"
    assert parse_time("2026-03-01T13:00:00.999+01:00") == NOON


@pytest.mark.parametrize("text", ["", "yesterday", "2026-03-01T12:00:00"])
def test_a_time_without_a_zone_or_sense_is_refused(text: str) -> None:
    """A time that names no zone could be any of 26 hours, so it is no time."""
    with pytest.raises(ValueError, match=r"zone|isoformat"):
        parse_time(text)


def test_a_number_is_no_time() -> None:
    """The wire knows times as strings only; an epoch would be read differently by everybody else."""
    with pytest.raises(InvalidError, match="creationTimestamp"):
        ObjectMeta.from_wire({"name": "a", "creationTimestamp": 1772366400})


def test_unknown_fields_are_ignored_and_null_means_absent() -> None:
    """Newer servers send fields that we do not know, and Go sends null for what is empty."""
    meta = ObjectMeta.from_wire({"name": "a", "labels": None, "managedFields": [{"manager": "kubectl"}]})
    assert meta == ObjectMeta(name="a")


def test_only_fields_that_were_set_are_written() -> None:
    """An unset field is not ours to write: a default in a merge patch would overwrite the real value."""
    assert ObjectMeta(name="a", resource_version="7").to_wire() == {"name": "a", "resourceVersion": "7"}


def test_wire_types_are_frozen() -> None:
    """A value that was read cannot be changed behind its reader's back."""
    meta = ObjectMeta(name="a")
    with pytest.raises(ValueError, match="frozen"):
        meta.name = "b"  # type: ignore[misc]


@pytest.mark.parametrize("reason", ["", "1st", "has space", "Ends,"])
def test_a_condition_needs_a_machine_readable_reason(reason: str) -> None:
    """A reason starts with a letter and has no spaces, as the API server demands."""
    with pytest.raises(InvalidError, match="reason"):
        Condition.from_wire(
            {
                "type": "A",
                "status": "True",
                "reason": reason,
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        )


def test_a_condition_keeps_its_transition_time_while_its_status_stays() -> None:
    """A new reason is no transition; a new status is one."""
    old = (condition("A", ConditionStatus.TRUE, NOON),)
    later = NOON + timedelta(minutes=1)
    same = with_condition(old, condition("A", ConditionStatus.TRUE, later, "Other"))
    assert [(item.reason, item.last_transition_time) for item in same] == [("Other", NOON)]
    changed = with_condition(old, condition("A", ConditionStatus.FALSE, later))
    assert changed[0].last_transition_time == later


def test_conditions_of_others_survive_in_their_place() -> None:
    """A merge patch replaces the array, so the array that we write holds everybody's conditions."""
    foreign = condition("Foreign", ConditionStatus.TRUE, NOON)
    ours = condition("Ours", ConditionStatus.TRUE, NOON)
    merged = with_condition((ours, foreign), condition("Ours", ConditionStatus.FALSE, NOON))
    assert [item.type for item in merged] == ["Ours", "Foreign"]
    assert with_condition((foreign,), ours) == (foreign, ours)
    assert find_condition(merged, "Foreign") == foreign
    assert find_condition(merged, "None") is None

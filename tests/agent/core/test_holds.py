"""The owner set behind Draining."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.holds import Hold, Holds, Owner

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_each_owner_lifts_only_its_own_hold() -> None:
    """A gate that opens does not undo what the user asked for."""
    holds = Holds().with_hold(Hold(Owner.USER, "lunch", NOON)).with_hold(Hold(Owner.GATE, "hot", NOON))
    left = holds.without(Owner.GATE)
    assert [hold.owner for hold in left.held] == [Owner.USER]
    assert not left.without(Owner.USER)


def test_a_hold_ends_at_its_time_and_not_before() -> None:
    """`until` is the first moment at which the hold is gone."""
    holds = Holds().with_hold(Hold(Owner.USER, "lunch", NOON, NOON + timedelta(hours=1)))
    assert holds.live(NOON + timedelta(minutes=59))
    assert not holds.live(NOON + timedelta(hours=1))


def test_the_summary_names_owner_reason_and_end() -> None:
    """What people read says who, why and until when."""
    holds = Holds().with_hold(Hold(Owner.USER, "lunch", NOON, NOON + timedelta(hours=1)))
    assert holds.summary() == "user: lunch until 2026-01-01T13:00:00Z"
    assert Holds().summary() == ""


@given(st.lists(st.tuples(st.sampled_from(Owner), st.booleans())))
def test_the_set_is_empty_exactly_when_every_owner_has_let_go(moves: list[tuple[Owner, bool]]) -> None:
    """Whatever the order of holds and releases, the last word of each owner counts."""
    holds = Holds()
    last: dict[Owner, bool] = {}
    for owner, takes in moves:
        holds = holds.with_hold(Hold(owner, "why", NOON)) if takes else holds.without(owner)
        last[owner] = takes
    assert {hold.owner for hold in holds.held} == {owner for owner, takes in last.items() if takes}

"""What annotations may ask of a node, and what is made of those that cannot be understood."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from journeyman.core.holds import Owner
from journeyman.core.remote_verbs import CORDON, DRAIN, DRAINED, UNDERSTOOD, asked_of, told_of
from journeyman.model.meta import ConditionStatus
from journeyman_updater.contract.allow import ALLOW

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_a_cordon_has_an_end_and_a_reason() -> None:
    """It holds the node for the owner `remote`, and for nobody else."""
    hold = asked_of({CORDON: "2026-01-01T18:00:00Z  new   disk\n"}, NOON).hold
    assert hold is not None
    assert (hold.owner, hold.reason) == (Owner.REMOTE, "cordon: new disk")
    assert hold.until == NOON + timedelta(hours=6)


def test_a_drain_wins_over_a_cordon() -> None:
    """Both keep work away; the drain is also answered."""
    asked = asked_of({CORDON: "2026-01-02T00:00:00Z a", DRAIN: "2026-01-01T13:00:00+00:00 b"}, NOON)
    assert asked.drain
    assert asked.hold is not None
    assert asked.hold.reason == "drain: b"


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z over", "2025-01-01T00:00:00Z long over"])
def test_what_is_over_asks_for_nothing(text: str) -> None:
    """An annotation that somebody forgot to take off ends by itself."""
    assert asked_of({CORDON: text, DRAIN: text}, NOON).hold is None
    assert not asked_of({DRAIN: text}, NOON).drain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begin with its end"),
        ("true", "begin with its end"),
        ("2026-01-01T18:00:00 no zone", "begin with its end"),
        ("2026-01-01T18:00:00Z", "add the reason"),
        ("2026-01-01T18:00:00Z   ", "add the reason"),
        ("2027-01-01T18:00:00Z for ever", "more than 30 days"),
    ],
)
def test_what_cannot_be_understood_is_not_obeyed_and_said(text: str, said: str) -> None:
    """A condition tells whoever wrote it what to write."""
    asked = asked_of({DRAIN: text}, NOON)
    assert asked.hold is None
    [told] = told_of(asked, frozenset(), draining=True, running=0)
    assert (told.type, told.status) == (UNDERSTOOD, ConditionStatus.FALSE)
    assert told.message.startswith(f"{DRAIN}: ")
    assert said in told.message


def test_an_allowance_holds_nothing_and_its_mistakes_are_said() -> None:
    """The updater obeys it; the agent tells whoever wrote it what to write."""
    assert asked_of({ALLOW: f"2026-01-02T00:00:00Z {'ab' * 32} the disk was at fault"}, NOON) == asked_of(
        {}, NOON
    )
    asked = asked_of({ALLOW: "2026-01-02T00:00:00Z 1.4.0 a version is no SHA-256"}, NOON)
    assert asked.hold is None
    assert asked.mistakes == (f"{ALLOW}: name the whole SHA-256 of the release after the end",)


def test_no_other_annotation_is_a_verb() -> None:
    """Nothing that names a URL, a version or a pin is obeyed."""
    others = dict.fromkeys(("journeyman.dev/pin", "journeyman.dev/url", "journeyman.dev/uncordon"), "x")
    assert asked_of(others, NOON) == asked_of({}, NOON)
    assert told_of(asked_of(others, NOON), frozenset(), draining=True, running=3) == ()


@pytest.mark.parametrize(
    ("draining", "running", "carried", "text", "expected"),
    [
        (False, 0, frozenset[str](), "2026-01-01T18:00:00Z disk", [(ConditionStatus.FALSE, "Beginning")]),
        (True, 2, frozenset[str](), "2026-01-01T18:00:00Z disk", [(ConditionStatus.FALSE, "WorkRuns")]),
        (True, 0, frozenset[str](), "2026-01-01T18:00:00Z disk", [(ConditionStatus.TRUE, "NothingRuns")]),
        (False, 0, frozenset({DRAINED}), None, [(ConditionStatus.FALSE, "NotDraining")]),
        (False, 0, frozenset[str](), None, []),
    ],
)
def test_a_drain_is_answered_as_long_as_somebody_may_wait_for_it(
    *,
    draining: bool,
    running: int,
    carried: frozenset[str],
    text: str | None,
    expected: list[tuple[ConditionStatus, str]],
) -> None:
    """Drained is said once no work can come; a node that was never drained carries no condition for it."""
    asked = asked_of({} if text is None else {DRAIN: text}, NOON)
    told = told_of(asked, carried, draining=draining, running=running)
    assert [(one.status, one.reason) for one in told] == expected

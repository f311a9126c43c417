"""When a ready server has to generate a token as a proof."""

from __future__ import annotations

from journeyman.core.liveness import Life, Traffic, look

PATIENCE = 600


def must_prove(life: Life, traffic: Traffic | None, *, now: float, in_use: bool = False) -> tuple[Life, bool]:
    return look(life, traffic, in_use=in_use, now=now, patience=PATIENCE)


def test_an_idle_server_proves_itself() -> None:
    """Nobody uses it, so nobody would notice that it hangs."""
    assert must_prove(Life(0, 5), Traffic(0, 5), now=60) == (Life(0, 5), True)
    assert must_prove(Life(0), None, now=60)[1]


def test_a_server_whose_requests_succeed_is_not_asked() -> None:
    """An answer to a client since the last look is a proof, and it counts as one from then on."""
    assert must_prove(Life(0, 5), Traffic(0, 6), now=60) == (Life(60, 6), False)
    assert must_prove(Life(0, 5), Traffic(2, 6), now=60) == (Life(60, 6), False)


def test_what_was_answered_before_the_first_look_is_no_proof() -> None:
    """Only a difference tells when something happened, and another proxy begins at zero."""
    assert must_prove(Life(0), Traffic(0, 6), now=60) == (Life(0, 6), True)
    assert must_prove(Life(0, 9), Traffic(0, 3), now=60) == (Life(0, 3), True)


def test_a_busy_server_is_not_asked_but_not_for_ever() -> None:
    """A question would wait behind its work; but work without an end is no sign of life."""
    assert not must_prove(Life(0, 5), Traffic(1, 5), now=PATIENCE - 1)[1]
    assert must_prove(Life(0, 5), Traffic(1, 5), now=PATIENCE)[1]
    assert not must_prove(Life(0), None, in_use=True, now=PATIENCE - 1)[1]
    assert must_prove(Life(0), None, in_use=True, now=PATIENCE)[1]


def test_a_token_begins_the_patience_anew() -> None:
    """A server that has just generated may work on something long."""
    assert not must_prove(Life(0, 5).seen(500), Traffic(1, 5), now=PATIENCE + 1)[1]

"""How often a trial has been started; the guard counts by the same rules in its own words."""

from __future__ import annotations

from collections.abc import Iterable

from journeyman_updater.model.attempt import Attempt

ATTEMPTS = 3
"""Charged starts of a trial in one boot."""
ATTEMPTS_IN_ALL = 9
"""Charged starts in all boots: a trial that takes the host down each time must end, too."""

_CHARGES = {"start": 1, "refund": -1}


def charged(attempts: Iterable[Attempt], nonce: str, boot: str | None = None) -> int:
    """How many starts of the trial count against it.

    Args:
        attempts: the lines of the guard's file.
        nonce: of the trial.
        boot: only those of this boot; those of all boots if None.
    """
    mine = (item for item in attempts if item.nonce == nonce and boot in {None, item.boot})
    return sum(_CHARGES.get(item.event, 0) for item in mine)


def is_exhausted(attempts: Iterable[Attempt], nonce: str, boot: str) -> bool:
    """Whether the guard will not start the trial again in this boot."""
    known = tuple(attempts)
    return charged(known, nonce, boot) >= ATTEMPTS or charged(known, nonce) >= ATTEMPTS_IN_ALL

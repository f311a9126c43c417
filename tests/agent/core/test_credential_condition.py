"""The condition about a credential says what is wrong and what to do, and nothing where nobody renews."""

from __future__ import annotations

import pytest

from journeyman.core.credential_condition import told_of
from journeyman.errors import (
    CertificateError,
    DeniedError,
    HostError,
    JourneymanError,
    PendingError,
    UnauthorizedError,
    UnreachableError,
)


def test_a_credential_that_nobody_renews_has_no_condition() -> None:
    """The node of a plane, whose credential has no end, is told nothing of it."""
    assert told_of("", None) == ()


def test_a_renewal_that_goes_well_says_always_the_same() -> None:
    """No write is caused by a renewal: the message names neither time nor key."""
    (one,) = told_of("token", None)
    assert (one.type, one.status.value, one.reason) == ("CredentialExpiring", "False", "Renewable")
    assert told_of("token", None) == (one,)


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (PendingError("p", "do"), "AwaitingApproval"),
        (DeniedError("p", "do"), "Denied"),
        (CertificateError("p", "do"), "SignerFailed"),
        (UnauthorizedError("p", "do"), "NotRenewed"),
        (UnreachableError("p", "do"), "NotRenewed"),
        (HostError("p", "do"), "NotKept"),
    ],
)
def test_each_problem_has_a_word_and_the_advice(problem: JourneymanError, reason: str) -> None:
    """Programs read the reason, people what is wrong and what to do about it."""
    (one,) = told_of("token", problem)
    assert (one.status.value, one.reason, one.message) == ("True", reason, "p. do")

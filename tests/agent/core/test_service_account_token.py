"""A token says when it wants to be renewed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from journeyman.core.service_account_token import account_token, expiry_of, token_in
from journeyman.errors import UnauthorizedError
from tests.support.account_tokens import made_token

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_token_is_due_at_four_fifths_of_its_life() -> None:
    """Before that it is left alone, from then on it is renewed, also once it has expired."""
    token = account_token(made_token("fleet", "journeyman-desk", NOW, NOW + HOUR))
    assert token is not None
    assert token.path == "/api/v1/namespaces/fleet/serviceaccounts/journeyman-desk/token"
    assert [token.is_due(NOW + HOUR * part) for part in (0, 0.79, 0.8, 1.5)] == [False, False, True, True]


@pytest.mark.parametrize(("life", "asked"), [(HOUR, 3600), (timedelta(minutes=1), 600)])
def test_the_next_one_lives_as_long(life: timedelta, asked: int) -> None:
    """The request asks for the same life, and for no less than the server gives."""
    token = account_token(made_token("fleet", "a", NOW, NOW + life))
    assert token is not None
    assert token.request()["spec"] == {"expirationSeconds": asked}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node.desk.secret",
        "a.b.c",
        "a.e30.c",
        made_token("fleet", "a", NOW, NOW),
        made_token("fleet", "a:b", NOW, NOW + HOUR),
        made_token("fleet", "a", NOW, NOW + HOUR, sub="kubernetes-admin"),
        made_token("fleet", "a", NOW, NOW + HOUR, exp="never"),
        made_token("fleet", "a", NOW, NOW + HOUR, sub=7),
    ],
)
def test_what_is_no_token_of_an_account_is_left_alone(text: str) -> None:
    """Other tokens, and those that never expire, are nobody's to renew here."""
    assert account_token(text) is None


@pytest.mark.parametrize(
    "reply", [{}, {"status": {}}, {"status": {"token": ""}}, {"status": {"token": "a b"}}, []]
)
def test_an_answer_without_a_token_has_none(reply: Any) -> None:
    """Only a status with one word of ASCII is a token."""
    assert token_in(reply) == ""
    assert token_in({"status": {"token": "t"}}) == "t"


def test_a_refused_token_that_has_expired_says_so() -> None:
    """From its last second on it is why the server refused it; before that, and for others, it is not."""
    refusal = UnauthorizedError(
        "GET x: Unauthorized (HTTP 401)", "Check it.", status=401, reason="Unauthorized"
    )
    token = made_token("fleet", "desk", NOW, NOW + HOUR)
    assert expiry_of(token, refusal, NOW + HOUR - timedelta(seconds=1)) is None
    assert expiry_of("node.desk.secret", refusal, NOW + HOUR) is None
    found = expiry_of(token, refusal, NOW + HOUR)
    assert found is not None
    assert found.message == "GET x: Unauthorized (HTTP 401): the token expired at 2026-11-30 13:00 UTC"
    assert "`kubectl create token desk --namespace fleet`" in found.advice
    assert (found.status, found.reason) == (401, "Unauthorized")

"""What a CertificateSigningRequest says, what its status means, and when the next one is due."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from journeyman.core.certificate_request import (
    SKEW,
    Answer,
    Stage,
    answer_of,
    check_issued,
    expired_certificate,
    is_same_request,
    renewal_time,
    request_name,
    request_object,
    user_of,
)
from journeyman.errors import CertificateError, DeniedError, UnauthorizedError
from journeyman.model.certificate import CertificateFacts

NOW = datetime(2026, 12, 1, tzinfo=UTC)
DIGEST = "ab" * 32
DAY = timedelta(days=1)


def facts(**changes: Any) -> CertificateFacts:
    said = {"user": user_of("desk"), "key_digest": DIGEST, "not_before": NOW, "not_after": NOW + DAY}
    return CertificateFacts(**{**said, **changes})


def test_the_name_is_that_of_node_and_key() -> None:
    """The same node and key give the same name, and others another one, which is a name to Kubernetes."""
    name = request_name("desk", DIGEST)
    assert name == "journeyman-desk-abababababababab"
    assert request_name("desk", "cd" * 32) != name
    assert request_name("desk-2", DIGEST) != name


def test_the_request_is_what_the_signer_accepts() -> None:
    """The signer for clients of the API server, the usages of a curve, and a life only if wished."""
    body = request_object("x", "PEM", None)
    assert body["apiVersion"] == "certificates.k8s.io/v1"
    assert body["spec"] == {
        "request": base64.b64encode(b"PEM").decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["digital signature", "client auth"],
    }
    assert request_object("x", "PEM", 900)["spec"]["expirationSeconds"] == 900
    assert is_same_request(body, "PEM")
    assert not is_same_request(body, "another")
    assert not is_same_request({}, "PEM")


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (None, Answer(Stage.PENDING)),
        ({}, Answer(Stage.PENDING)),
        ({"conditions": None}, Answer(Stage.PENDING)),
        ({"conditions": [{"type": "Approved", "status": "False"}]}, Answer(Stage.PENDING)),
        ({"conditions": [{"type": "Approved", "status": "True"}]}, Answer(Stage.APPROVED)),
        (
            {"conditions": [{"type": "Approved", "status": "True"}], "certificate": "UEVN"},
            Answer(Stage.ISSUED, "PEM"),
        ),
    ],
)
def test_the_status_says_how_far_it_is(status: Any, answer: Answer) -> None:
    """Nothing, approved, and issued are told apart by conditions and certificate."""
    assert answer_of({} if status is None else {"status": status}, "x") == answer


@pytest.mark.parametrize(
    ("kind", "error"), [("Denied", DeniedError), ("Failed", CertificateError)], ids=["denied", "failed"]
)
def test_a_refusal_has_its_reason(kind: str, error: type[Exception]) -> None:
    """Whoever refused, and why, is in the sentence."""
    condition = {"type": kind, "status": "True", "reason": "Policy", "message": "who is that?"}
    approved = {"type": "Approved", "status": "True"}
    with pytest.raises(error, match=r"\(Policy: who is that\?\)"):
        answer_of({"status": {"conditions": [approved, condition]}}, "x")


@pytest.mark.parametrize("encoded", ["?", "w6Q=", 7])
def test_a_certificate_that_is_no_text_is_an_error(encoded: Any) -> None:
    """What is no base64 of ASCII is said to be none."""
    with pytest.raises(CertificateError, match="no PEM text"):
        answer_of({"status": {"certificate": encoded}}, "x")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"key_digest": "cd" * 32}, "of another key"),
        ({"user": "admin"}, "is for 'admin'"),
        ({"not_after": NOW}, "expired at 2026-12-01 00:00 UTC"),
        ({"not_before": NOW + SKEW + timedelta(seconds=1)}, "not good before"),
    ],
)
def test_a_certificate_of_no_use_is_refused(changes: dict[str, Any], says: str) -> None:
    """Another key, another user, too late and far too early."""
    with pytest.raises(CertificateError, match=says):
        check_issued(facts(**changes), node="desk", key_digest=DIGEST, name="x", now=NOW)


def test_clocks_may_differ_a_little() -> None:
    """A certificate whose time begins in a minute is not refused."""
    check_issued(facts(not_before=NOW + SKEW), node="desk", key_digest=DIGEST, name="x", now=NOW)


@given(
    digest=some.integers(0, 2**256 - 1).map(lambda number: f"{number:064x}"),
    fraction=some.floats(0.2, 0.95),
    life=some.integers(600, 10**8),
)
def test_the_next_one_is_due_within_a_tenth_of_the_life(digest: str, fraction: float, life: int) -> None:
    """Whatever chance says, it is due at most a tenth of the life before the set part, and never after it."""
    whole = timedelta(seconds=life)
    due = renewal_time(facts(key_digest=digest, not_after=NOW + whole), fraction)
    slack = timedelta(milliseconds=1)
    assert NOW + whole * (fraction - 0.1) - slack <= due <= NOW + whole * fraction + slack


def test_chance_is_that_of_the_key() -> None:
    """The same certificate is due at the same time at each look, and another one at another time."""
    assert renewal_time(facts(), 0.8) == renewal_time(facts(), 0.8)
    assert renewal_time(facts(key_digest="00" * 32), 0.8) - renewal_time(
        facts(key_digest="ff" * 32), 0.8
    ) == (pytest.approx(DAY * 0.1, abs=timedelta(seconds=1)))


def test_an_expired_certificate_says_to_join_again() -> None:
    """A refusal gets its reason and the way out; its status stays."""
    error = expired_certificate(facts(), UnauthorizedError("GET x: no (HTTP 401)", status=401))
    assert "expired at 2026-12-02 00:00 UTC" in error.message
    assert "journeyman join URL --csr" in error.advice
    assert (error.status, error.exit_code) == (401, 77)

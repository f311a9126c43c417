"""Which requests are granted."""

from __future__ import annotations

from typing import Any

import pytest

from journeyman_updater.core.requests import Grant, decide, request_of
from journeyman_updater.errors import Reason, RequestError
from journeyman_updater.model.release import Slot, UpdateRequest, VersionId, parse_sha256
from journeyman_updater.model.state import Rejection, Spec, StateDocument, Status

ACTIVE, WANTED, BAD = (parse_sha256(letter * 64) for letter in "abc")
REQUEST = UpdateRequest(VersionId("v1.1.0"), "https://releases.example/a+b c.tar.gz", WANTED)


def document(**status: Any) -> StateDocument:
    active = Slot(VersionId("1.0.0"), ACTIVE)
    rejected = (Rejection("1.1.0", BAD, "CrashLoop", ""),)
    return StateDocument(Spec(), Status(active=active, rejected=rejected, **status))


@pytest.mark.parametrize(
    ("version", "sha256", "trial", "grant"),
    [
        ("1.1.0", WANTED, None, Grant.GRANTED),
        ("1.0.0", WANTED, None, Grant.GRANTED),
        ("1.1.0", ACTIVE, None, Grant.NOT_NEEDED),
        ("v9.9.9", ACTIVE, None, Grant.NOT_NEEDED),
        ("1.1.0", WANTED, WANTED, Grant.NOT_NEEDED),
        ("1.1.0", WANTED, BAD, Grant.LATER),
    ],
    ids=["new", "same name, other bytes", "active", "active by another name", "on trial", "another on trial"],
)
def test_the_bytes_decide_and_not_the_name(
    version: str, sha256: str, trial: str | None, grant: Grant
) -> None:
    """Equal bytes are the same release whatever it is called; a trial is never interrupted by a request."""
    slot = Slot(VersionId("1.1.0"), parse_sha256(trial), "n") if trial else None
    request = UpdateRequest(VersionId(version), "https://x.example/", parse_sha256(sha256))
    assert decide(request, document(trial=slot)) is grant


def test_a_rejected_release_is_refused_by_its_bytes() -> None:
    """A rejection holds for the bytes, under whatever version they come back."""
    request = UpdateRequest(VersionId("7.0.0"), "https://x.example/", BAD)
    with pytest.raises(RequestError) as caught:
        decide(request, document())
    assert caught.value.reason is Reason.DENYLISTED
    assert BAD in caught.value.advice


@pytest.mark.parametrize(("pin", "refused"), [("1.1.0", False), ("1.0.0", True)])
def test_a_pin_lets_only_its_version_pass(pin: str, *, refused: bool) -> None:
    """A pinned host takes the pinned version, however spelled, and no other."""
    pinned = StateDocument(Spec(pin=pin), document().status)
    if not refused:
        assert decide(REQUEST, pinned) is Grant.GRANTED
        return
    with pytest.raises(RequestError) as caught:
        decide(REQUEST, pinned)
    assert caught.value.reason is Reason.PINNED


def test_the_own_nodes_request_is_read_as_it_is_spelled() -> None:
    """Version and URL come through untouched, `+` and spaces included."""
    wish = {"targetVersion": "v1.1.0", "url": REQUEST.url, "sha256": WANTED.upper()}
    node = {"metadata": {"name": "desk"}, "status": {"updateRequest": wish}}
    assert request_of(node, "desk") == REQUEST
    assert request_of({"metadata": {"name": "desk"}}, "desk") is None


@pytest.mark.parametrize(
    "change",
    [
        {"targetVersion": "../../x"},
        {"sha256": "abc"},
        {"url": "file:///etc/passwd"},
        {"url": None},
        {"sha256": None},
    ],
)
def test_a_malformed_request_is_refused(change: dict[str, Any]) -> None:
    """What is no version, digest or web address is BadRequest."""
    wish = {"targetVersion": "1.1.0", "url": "https://x.example/", "sha256": WANTED, **change}
    with pytest.raises(RequestError) as caught:
        request_of({"metadata": {"name": "desk"}, "status": {"updateRequest": wish}}, "desk")
    assert caught.value.reason is Reason.BAD_REQUEST


def test_another_nodes_request_is_not_ours() -> None:
    """An answer about another node is refused, whoever sent it."""
    wish = {"targetVersion": "1.1.0", "url": "https://x.example/", "sha256": WANTED}
    with pytest.raises(RequestError):
        request_of({"metadata": {"name": "shed"}, "status": {"updateRequest": wish}}, "desk")

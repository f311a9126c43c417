"""Replies that are no success become one typed error and one clear sentence."""

from __future__ import annotations

import json
import ssl

import pytest

from journeyman.core.api_errors import error_for, error_in_watch, object_of, unreachable
from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
)

SERVER = "https://plane"


def status(code: int, reason: str, message: str) -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (400, InvalidError, 65),
        (401, UnauthorizedError, 77),
        (403, UnauthorizedError, 77),
        (404, NotFoundError, 66),
        (409, ConflictError, 75),
        (410, ExpiredError, 69),
        (422, InvalidError, 65),
        (429, ControlPlaneError, 69),
        (500, ControlPlaneError, 69),
        (503, ControlPlaneError, 69),
    ],
)
def test_each_status_has_its_error(code: int, kind: type[ControlPlaneError], exit_code: int) -> None:
    """The type, the reason and the server's own words survive."""
    error = error_for("GET x", code, status(code, "Because", "it is so"), {"retry-after": "7"})
    assert type(error) is kind
    assert error.exit_code == exit_code
    assert (error.status, error.reason, error.retry_after_seconds) == (code, "Because", 7.0)
    assert error.message == f"GET x: it is so (HTTP {code}, Because)"


def test_a_bare_404_is_no_missing_object() -> None:
    """Nobody serves the path: posting an object again would not help."""
    error = error_for("GET x", 404, b"404 page not found", {})
    assert not isinstance(error, NotFoundError)
    assert "CustomResourceDefinitions" in error.advice


def test_a_redirect_names_its_target_and_is_not_followed() -> None:
    """A token is never carried to another place."""
    error = error_for("GET x", 302, b"", {"location": "https://login"})
    assert "https://login" in error.message
    assert "not followed" in error.message


def test_an_error_page_is_described_not_printed() -> None:
    """A proxy's page does not fill the log."""
    error = error_for("GET x", 502, b"<html>" + b"x" * 10_000, {})
    assert error.message == "GET x: the server answered with a web page (HTTP 502)"


def test_a_retry_date_is_ignored() -> None:
    """Only seconds are understood; anything else leaves the pace to the caller."""
    assert error_for("GET x", 503, b"", {"retry-after": "Wed, 21 Oct 2026"}).retry_after_seconds is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "an empty body"),
        (b"<!doctype html>", "a web page"),
        (b'{"kind": "Sta', "a broken JSON object"),
        (b"OK\nfine", "the text 'OK fine'"),
        (b"\xff\xfe", "the text"),
        (b"[" * 100_000, "the text"),
    ],
)
def test_what_is_no_json_is_said_to_be_what_it_is(body: bytes, said: str) -> None:
    """One sentence tells a login page from a cut connection."""
    with pytest.raises(ControlPlaneError, match="instead of JSON") as caught:
        object_of("GET x", body)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_json_that_is_no_object_is_refused() -> None:
    """A list is no Kubernetes object."""
    with pytest.raises(ControlPlaneError, match="no object"):
        object_of("GET x", b"[]")


def test_an_error_event_without_a_code_is_a_server_error() -> None:
    """Half a Status is no reason to crash."""
    assert error_in_watch("WATCH x", {"code": "410"}).status == 500
    assert isinstance(error_in_watch("WATCH x", {"kind": "Status", "code": 410}), ExpiredError)


def caused(error: BaseException) -> Exception:
    """What a library makes of a system's error."""
    wrapped = RuntimeError("All connection attempts failed")
    wrapped.__cause__ = error
    return wrapped


def test_errno_65_on_a_mac_is_local_network_privacy() -> None:
    """There "no route to host" means a missing permission, and the message says which."""
    mac = unreachable("GET x", caused(OSError(65, "No route to host")), server=SERVER, platform="darwin")
    assert "Local Network Privacy" in mac.message
    linux = unreachable(
        "GET x", caused(OSError(65, "Package not installed")), server=SERVER, platform="linux"
    )
    assert "Local Network" not in linux.message


def test_the_systems_own_words_are_found_in_groups() -> None:
    """The system reports one error for each address that it tried."""
    group = ExceptionGroup("several", [OSError(101, "Network is unreachable"), OSError(111, "refused")])
    assert "refused" in unreachable("GET x", caused(group), server=SERVER, platform="linux").message


@pytest.mark.parametrize(
    ("error", "said", "advice"),
    [
        (ssl.SSLCertVerificationError(1, "self-signed"), "is not trusted", "ca_file"),
        (ssl.SSLError(1, "WRONG_VERSION_NUMBER"), "no TLS with", "https only where"),
        (TimeoutError(), "timed out", "runs and can be reached"),
        (ConnectionRefusedError(111, "x"), "connection refused", "runs and can be reached"),
    ],
)
def test_the_way_to_the_server_is_explained(error: BaseException, said: str, advice: str) -> None:
    """Each kind of failure has its own advice."""
    explained = unreachable("GET x", caused(error), server=SERVER, platform="linux")
    assert said in explained.message
    assert advice in explained.advice

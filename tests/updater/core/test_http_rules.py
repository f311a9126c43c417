"""The decisions of a download, without a network."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from journeyman_updater.contract.http_rules import (
    ContentRange,
    RetryPolicy,
    Tries,
    is_loopback,
    origin,
    retry_after_seconds,
    strong_validator,
)
from journeyman_updater.core.http_rules import check_hop
from journeyman_updater.errors import Reason, RequestError, UntrustedError

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
NONE: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("url", "came_from"),
    [
        ("https://example.com/a", None),
        ("http://localhost:8080/a", None),
        ("http://127.9.9.9/a", None),
        ("http://[::1]:80/a", None),
        ("http://mirror.lan/a", None),
        ("https://example.com/a", "http://127.0.0.1/a"),
        ("http://127.0.0.1/b", "http://127.0.0.1/a"),
    ],
)
def test_https_and_named_exceptions_pass(url: str, came_from: str | None) -> None:
    """Https passes everywhere, http on loopback and on hosts that were named."""
    check_hop(url, came_from=came_from, plain_hosts=frozenset({"mirror.lan"}))


@pytest.mark.parametrize(
    ("url", "came_from"),
    [
        ("http://example.com/a", None),
        ("http://localhost.example.com/a", None),
        ("http://127.0.0.1.example.com/a", None),
        ("http://user@127.0.0.1:80@example.com/a", None),
        ("http://127.0.0.1/a", "https://example.com/a"),
        ("http://mirror.lan/a", "https://example.com/a"),
        ("HTTP://EXAMPLE.COM/a", None),
    ],
)
def test_plain_http_is_refused(url: str, came_from: str | None) -> None:
    """Http elsewhere is refused, and after https it is refused everywhere."""
    with pytest.raises(UntrustedError) as refused:
        check_hop(url, came_from=came_from, plain_hosts=frozenset({"mirror.lan"}))
    assert refused.value.reason is Reason.SCHEME_DOWNGRADE


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a",
        "file:///etc/passwd",
        "ftp://h/a",
        "https://",
        "https://[::1/a",
        "https://h:99999/",
        "https://h:x/",
    ],
)
def test_what_is_no_web_address_is_a_bad_request(url: str) -> None:
    """Another scheme, no host or no URL at all is the request's fault."""
    with pytest.raises(RequestError):
        check_hop(url, came_from=None, plain_hosts=NONE)


def test_loopback_is_told_by_its_address() -> None:
    """No name but localhost is loopback, whatever it resolves to."""
    assert is_loopback("localhost")
    assert not is_loopback("localhost.localdomain")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("")


def test_an_origin_is_scheme_host_and_port() -> None:
    """Default ports are filled in, and any other difference is another origin."""
    assert origin("https://h/a") == origin("https://h:443/b?c")
    assert len({origin(url) for url in ("https://h", "http://h", "https://h:8443", "https://i")}) == 4


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes 5-9/10", ContentRange(5, 9, 10)),
        ("bytes 5-9/*", ContentRange(5, 9, None)),
        ("bytes 9-5/10", None),
        ("bytes */10", None),
        ("items 5-9/10", None),
        ("", None),
        ("bytes 5-9/10, 12-13/20", None),
    ],
)
def test_a_content_range_is_read_strictly(text: str, found: ContentRange | None) -> None:
    """Only one well-formed range of bytes is one."""
    assert ContentRange.parse(text) == found


@pytest.mark.parametrize(
    ("etag", "modified", "date", "validator"),
    [
        ('"abc"', "", "", '"abc"'),
        ('W/"abc"', "", "", ""),
        ("abc", "", "", ""),
        ('"', "", "", ""),
        (
            "",
            "Mon, 30 Nov 2026 11:00:00 GMT",
            "Mon, 30 Nov 2026 12:00:00 GMT",
            "Mon, 30 Nov 2026 11:00:00 GMT",
        ),
        ("", "Mon, 30 Nov 2026 11:59:30 GMT", "Mon, 30 Nov 2026 12:00:00 GMT", ""),
        ("", "Mon, 30 Nov 2026 11:00:00 GMT", "", ""),
        ("", "yesterday", "today", ""),
    ],
)
def test_only_strong_validators_resume(etag: str, modified: str, date: str, validator: str) -> None:
    """A weak ETag, or a time so fresh that it may hide a second change, proves nothing."""
    assert strong_validator(etag, modified, date) == validator


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", None),
        ("120", 120.0),
        ("99999999999", 3600.0),
        ("Mon, 30 Nov 2026 12:00:10 GMT", 10.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    """Both forms are read, bounded to an hour; anything else is nothing."""
    assert retry_after_seconds(text, NOW) == seconds


def test_pauses_double_up_to_a_ceiling_with_full_jitter() -> None:
    """The pause is drawn from zero to a ceiling that doubles; what the server asks for is a floor."""
    policy = RetryPolicy(base_seconds=1, longest_seconds=60)
    assert [policy.pause_seconds(n, 1.0) for n in (1, 2, 3, 7, 5000)] == [1, 2, 4, 60, 60]
    assert policy.pause_seconds(3, 0.0) == 0
    assert policy.pause_seconds(3, 0.0, 30) == 30


def test_tries_that_bring_something_are_not_counted_against_the_next() -> None:
    """Given up is after so many tries in a row without a new byte, or where the server asks for too long."""
    policy = RetryPolicy(3, base_seconds=1, longest_seconds=60)
    tries = Tries(policy, 10)
    assert [tries.pause_after(here, 1.0) for here in (10, 10)] == [1.0, 2.0]
    # A file that was begun anew is shorter, and only what was never here is new.
    assert [tries.pause_after(here, 1.0) for here in (11, 5, 11)] == [1.0, 2.0, None]
    assert Tries(policy, 0).pause_after(9, 0.0, 60.0) == 60.0
    assert Tries(policy, 0).pause_after(9, 0.0, 61.0) is None

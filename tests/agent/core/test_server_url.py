"""Which server URLs may carry a token."""

from __future__ import annotations

import pytest

from journeyman.core.server_url import checked_server_url, is_loopback
from journeyman.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://plane:6443/", "https://plane:6443"),
        ("https://plane/clusters/a", "https://plane/clusters/a"),
        ("http://127.0.0.1:1234", "http://127.0.0.1:1234"),
        ("http://localhost:1234", "http://localhost:1234"),
        ("http://[::1]:1234", "http://[::1]:1234"),
    ],
)
def test_https_and_loopback_are_accepted(url: str, expected: str) -> None:
    """A token travels encrypted, or not at all beyond this machine."""
    assert checked_server_url(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "plane",
        "plane:6443",
        "ftp://plane",
        "https://",
        "https://plane:port",
        "https://plane:99999",
        "https://[::1",
        "https://plane?x=1",
        "https://plane#x",
        "https://user@plane",
        "http://192.0.2.1",
        "http://localhost.example.com",
        "http://127.0.0.1.example.com",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    """What is no base URL, or would leak, is a mistake of the settings."""
    with pytest.raises(ConfigError):
        checked_server_url(url)


def test_plain_http_can_be_allowed() -> None:
    """A network that encrypts by itself is the owner's call."""
    assert checked_server_url("http://192.0.2.1", allow_insecure_http=True) == "http://192.0.2.1"


def test_loopback_is_judged_by_address_not_by_prefix() -> None:
    """Only real loopback addresses are this machine."""
    assert is_loopback("127.9.9.9")
    assert not is_loopback("128.0.0.1")
    assert not is_loopback("127.0.0.1.evil")

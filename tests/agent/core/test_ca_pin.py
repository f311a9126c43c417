"""Two spellings of one hash are one hash."""

from __future__ import annotations

import pytest

from journeyman.core.ca_pin import checked_pin, pin_of
from journeyman.errors import ConfigError, UsageError

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    "text", [DIGEST, f"sha256:{DIGEST}", f"SHA256:{DIGEST.upper()}", ":".join(["AB"] * 32), f" {DIGEST}\n"]
)
def test_every_spelling_is_understood(text: str) -> None:
    """The forms of openssl, of kubeadm and of ours are one."""
    assert checked_pin(text) == f"sha256:{DIGEST}"


@pytest.mark.parametrize("text", ["", "sha256:", "ab" * 20, "zz" * 32, f"sha1:{DIGEST}"])
def test_what_is_no_hash_is_refused(text: str) -> None:
    """Anything else is refused with where to find the right one."""
    with pytest.raises(UsageError, match="is no SHA-256"):
        checked_pin(text)


@pytest.mark.parametrize("pem", ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAA"])
def test_what_is_no_certificate_has_no_hash(pem: str) -> None:
    """A file without a whole certificate is refused."""
    with pytest.raises(ConfigError, match="no certificate"):
        pin_of(pem)

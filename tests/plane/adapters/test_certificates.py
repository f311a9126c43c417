"""The generated CA and the server's certificate."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from journeyman.errors import HostError
from journeyman_plane.adapters.certificates import ensure_certificates

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_chain_verifies_by_name_and_by_time(tmp_path: Path) -> None:
    """The strict verifier of the cryptography library accepts the chain for its names, in its time."""
    ca, certificate, _ = ensure_certificates(tmp_path, ["desk.local"], NOW)

    def verify(name: str, at: datetime) -> None:
        policy = PolicyBuilder().store(Store([load(ca)])).time(at.replace(tzinfo=None))
        policy.build_server_verifier(x509.DNSName(name)).verify(load(certificate), [])

    verify("desk.local", NOW)
    verify("localhost", NOW - timedelta(hours=23))
    for name, at in (
        ("other.local", NOW),
        ("desk.local", NOW + timedelta(days=398)),
        ("desk.local", NOW - timedelta(days=2)),
    ):
        with pytest.raises(VerificationError):
            verify(name, at)


def test_keys_are_private_and_the_ca_is_kept(tmp_path: Path) -> None:
    """Keys are 0600; a second start keeps the CA and makes a new server certificate."""
    ca, certificate, key = ensure_certificates(tmp_path, [], NOW)
    before = ca.read_bytes(), certificate.read_bytes()
    ensure_certificates(tmp_path, [], NOW)
    assert ca.read_bytes() == before[0]
    assert certificate.read_bytes() != before[1]
    for file in (key, tmp_path / "ca.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_broken_ca_is_named(tmp_path: Path) -> None:
    """A CA that cannot be read is an error with advice, not a new CA that no client trusts."""
    ensure_certificates(tmp_path, [], NOW)
    (tmp_path / "ca.crt").write_text("nonsense")
    with pytest.raises(HostError, match="cannot be read"):
        ensure_certificates(tmp_path, [], NOW)

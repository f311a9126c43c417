"""Keys and requests are what signers want, and a certificate that changes in its file is shown at once."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from journeyman.adapters.client_certificate import (
    CertificateFile,
    X509Certificates,
    expired_refusal,
    split,
)
from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.errors import CertificateError, ConfigError, HostError, UnauthorizedError
from journeyman.ports import Collection
from journeyman.settings import load_settings
from tests.support.tls import Authority, tls_server

CA = Authority()
NODE = Collection("foreman.llmkube.dev", "v1alpha1", "fleetnodes").named("mac-1")
CERTIFICATES = X509Certificates()


def test_each_request_is_of_a_key_of_its_own() -> None:
    """On P-256, signed by the key itself, in the name that was asked for; no two are alike."""
    made, other = (CERTIFICATES.new_request("journeyman:node:desk", "journeyman:nodes") for _ in range(2))
    request = x509.load_pem_x509_csr(made.request.encode())
    key = load_pem_private_key(made.key.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert key.curve.name == "secp256r1"
    assert request.is_signature_valid
    assert request.public_key() == key.public_key()
    assert made.key_digest != other.key_digest
    assert made.key not in repr(made)


def test_facts_are_those_of_the_first_in_the_chain() -> None:
    """User, key and times are read of the certificate itself, whatever follows it."""
    made = CERTIFICATES.new_request("journeyman:node:desk", "journeyman:nodes")
    since = datetime(2026, 1, 1, tzinfo=UTC)
    chain = CA.sign(made.request, since=since, life=timedelta(hours=1)) + CA.pem
    facts = CERTIFICATES.facts(chain)
    assert (facts.user, facts.key_digest) == ("journeyman:node:desk", made.key_digest)
    assert (facts.not_before, facts.not_after) == (since, since + timedelta(hours=1))


@pytest.mark.parametrize(
    "text",
    ["", "x", "ä", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", CA.issue("x").key],
    ids=["empty", "text", "no ASCII", "no DER", "a key"],
)
def test_what_is_no_certificate_is_an_error(text: str) -> None:
    """Anything else than a certificate is told, and never taken for one."""
    with pytest.raises(CertificateError):
        CERTIFICATES.facts(text)


def test_the_file_holds_both_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Certificate, chain and key are in one file, 0600, from which each is read again."""
    pair = CA.issue("me")
    file = CertificateFile(tmp_path / "client.pem")
    assert file.read() == ""
    file.write(pair.certificate + CA.pem, pair.key)
    assert split((tmp_path / "client.pem").read_text()) == (pair.certificate + CA.pem, pair.key)
    assert file.read() == pair.certificate + CA.pem
    assert (tmp_path / "client.pem").stat().st_mode & 0o777 == 0o600
    with pytest.raises(HostError, match="cannot be kept"):
        CertificateFile(tmp_path / "none" / "client.pem").write(pair.certificate, pair.key)


def test_expiry_is_told_only_of_what_has_expired() -> None:
    """A refusal of a good certificate, or of what is none, has another reason."""
    made = CERTIFICATES.new_request("me", "us")
    end = CERTIFICATES.facts(CA.issue("me").certificate).not_after
    refusal = UnauthorizedError("no", status=401)
    assert expired_refusal(CA.issue("me").certificate, refusal, end - timedelta(hours=1)) is None
    assert expired_refusal(made.request, refusal, end) is None
    found = expired_refusal(CA.issue("me").certificate, refusal, end + timedelta(hours=1))
    assert found is not None
    assert "client certificate expired at" in found.message


def opened(folder: Path, server: str) -> HttpControlPlane:
    (folder / "ca.crt").write_text(CA.pem)
    flags = {"state_root": folder, "server": server, "ca_file": folder / "ca.crt"}
    settings = load_settings({**flags, "certificate_file": folder / "client.pem"}, {}).settings
    return HttpControlPlane(settings, SystemClock(), version="0", environ={})


def test_a_certificate_that_was_replaced_is_shown(tmp_path: Path) -> None:
    """The next request after the swap is made as the new one; a broken file in between changes nothing."""
    file = CertificateFile(tmp_path / "client.pem")

    async def scenario() -> None:
        async with tls_server(CA, tmp_path, wants_certificate=True) as server:
            first, second = CA.issue("first"), CA.issue("second")
            file.write(first.certificate, first.key)
            plane = opened(tmp_path, server.url)
            await plane.get(NODE)
            (tmp_path / "client.pem").unlink()
            await plane.get(NODE)
            file.write(second.certificate, first.key)
            with pytest.raises(UnauthorizedError, match="the key is of another certificate"):
                await plane.get(NODE)
            file.write(second.certificate, second.key)
            await plane.get(NODE)
            await plane.aclose()
            assert [each["certificate"] for each in server.seen] == ["first", "first", "second"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "the client certificate .* cannot be read: No such file"), ("nothing", "cannot be used")],
)
def test_a_file_of_no_use_is_told_at_the_start(tmp_path: Path, content: str | None, says: str) -> None:
    """A missing or empty file is named before anything is sent."""
    if content is not None:
        (tmp_path / "client.pem").write_text(content)
    with pytest.raises(ConfigError, match=says):
        opened(tmp_path, "https://192.0.2.10")

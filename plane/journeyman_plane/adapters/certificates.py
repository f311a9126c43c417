"""A CA of one's own, and the certificate of the server that it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from journeyman.errors import HostError
from journeyman_updater.contract import write_durably

_CA_LIFE = timedelta(days=3650)
# The server's certificate is made anew at each start; Apple's limit for its life is 398 days.
_SERVER_LIFE = timedelta(days=397)
# The clocks of phones and of machines that just booted lag behind.
_BACKDATED = timedelta(days=1)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


def ensure_certificates(folder: Path, names: Iterable[str], now: datetime) -> tuple[Path, Path, Path]:
    """Makes the CA at the first start and a certificate of the server at every start.

    Args:
        folder: where the files are kept; keys are 0600.
        names: DNS names and IP addresses of the server, beside those of loopback.
        now: both are valid from a day before.

    Returns:
        The CA's certificate, the server's certificate and the server's key.

    Raises:
        HostError: the CA's files cannot be read.
    """
    ca_file, ca_key_file = folder / "ca.crt", folder / "ca.key"
    if not ca_key_file.exists():
        _make_ca(ca_file, ca_key_file, now)
    try:
        authority = x509.load_pem_x509_certificate(ca_file.read_bytes())
        ca_key = serialization.load_pem_private_key(ca_key_file.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise HostError(
            f"the CA in {folder} cannot be read: {error}",
            "Restore ca.crt and ca.key, or delete both: then a new CA is made that clients must be given.",
        ) from error
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    certificate, key = folder / "server.crt", folder / "server.key"
    server_key = ec.generate_private_key(ec.SECP256R1())
    signed = _server_certificate(authority, ca_key, server_key, dict.fromkeys((*LOOPBACK_NAMES, *names)), now)
    write_durably(key, _key_pem(server_key))
    write_durably(certificate, signed.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return ca_file, certificate, key


def _make_ca(certificate_file: Path, key_file: Path, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "journeyman plane CA")])
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(name, name, key, now, _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    # The key comes last: a cut in between makes a new pair at the next start.
    write_durably(certificate_file, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    write_durably(key_file, _key_pem(key))


def _server_certificate(
    authority: x509.Certificate,
    ca_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
    names: Iterable[str],
    now: datetime,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "journeyman plane")])
    ca_identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _builder(subject, authority.subject, key, now, _SERVER_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_identifier), critical=False
        )
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + life)
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )

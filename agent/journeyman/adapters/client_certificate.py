"""Keys, requests and certificates of X.509, and the one file that holds a certificate with its key.

The library is imported where it is used: it takes 4 MiB, which an agent with a token does without.
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime
from pathlib import Path

from journeyman.core.certificate_request import expired_certificate
from journeyman.errors import CertificateError, ControlPlaneError, HostError, UnauthorizedError
from journeyman.model.certificate import CertificateFacts, KeyedRequest
from journeyman_updater.contract import write_durably

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----\n?", re.DOTALL)


class X509Certificates:
    """The port `Certificates`: keys are on the curve P-256."""

    def new_request(self, user: str, group: str) -> KeyedRequest:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        return KeyedRequest(secret, request.public_bytes(pem).decode(), _digest(key.public_key()))

    def facts(self, chain: str) -> CertificateFacts:
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        try:
            first = x509.load_pem_x509_certificate(chain.encode("ascii"))
            names = first.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            return CertificateFacts(
                user=str(names[0].value) if names else "",
                key_digest=_digest(first.public_key()),
                not_before=first.not_valid_before_utc,
                not_after=first.not_valid_after_utc,
            )
        except (ValueError, x509.InvalidVersion) as error:
            raise CertificateError(" ".join(str(error).split())) from error


class CertificateFile:
    """One PEM file with a certificate, its chain and its key: what replaces it replaces all of it at once.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str:
        """The certificate with its chain; empty if there is none, or it cannot be read now."""
        with contextlib.suppress(OSError, ValueError):
            return split(self._path.read_text(encoding="ascii"))[0]
        return ""

    def write(self, certificate: str, key: str) -> None:
        """Replaces both durably, 0600.  Raises HostError."""
        try:
            write_durably(self._path, f"{certificate.rstrip()}\n{key.rstrip()}\n".encode())
        except OSError as error:
            raise HostError(
                f"the new certificate cannot be kept in {self._path}: {error.strerror}",
                "Mend the permissions.",
            ) from error


def split(text: str) -> tuple[str, str]:
    """The certificates of a PEM text, and its keys."""
    certificates: list[str] = []
    keys: list[str] = []
    for block in _BLOCK.finditer(text):
        (certificates if block[1] == "CERTIFICATE" else keys).append(block[0].rstrip() + "\n")
    return "".join(certificates), "".join(keys)


def expired_refusal(chain: str, refusal: ControlPlaneError, now: datetime) -> UnauthorizedError | None:
    """A refusal with its reason, where the certificate that was shown has expired; None where it has not.

    Args:
        chain: PEM text.
        refusal: what the server said, if only by hanging up.
        now: by the server's clock.
    """
    try:
        facts = X509Certificates().facts(chain)
    except CertificateError:
        return None
    return expired_certificate(facts, refusal) if now >= facts.not_after else None


def _digest(key: object) -> str:
    """The SHA-256 of a public key."""
    import hashlib

    from cryptography.hazmat.primitives import serialization

    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(encoded).hexdigest()

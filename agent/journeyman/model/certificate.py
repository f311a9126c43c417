"""Client certificates as far as the agent decides by them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class CertificateFacts:
    """What a certificate says of itself.

    Attributes:
        user: its common name, which is the user to an API server.
        key_digest: the SHA-256 of its public key in hexadecimal digits.
        not_before: when it becomes good.
        not_after: when it ceases to be.
    """

    user: str
    key_digest: str
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True)
class KeyedRequest:
    """A new key, and what asks for a certificate of it.

    Attributes:
        key: PEM text of the private key, which never leaves this host.
        request: PEM text of the PKCS #10 request.
        key_digest: as in `CertificateFacts`.
    """

    key: str = field(repr=False)
    request: str
    key_digest: str

"""Keys and certificates."""

from __future__ import annotations

from typing import Protocol

from journeyman.model.certificate import CertificateFacts, KeyedRequest


class Certificates(Protocol):
    """Makes keys with their requests, and reads certificates."""

    def new_request(self, user: str, group: str) -> KeyedRequest:
        """A new key, and the request for a certificate in that name."""
        ...

    def facts(self, chain: str) -> CertificateFacts:
        """What the first certificate of a PEM text says.  Raises CertificateError where there is none."""
        ...

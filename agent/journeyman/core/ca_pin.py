"""The hash by which a person tells one CA from another: SHA-256 of its certificate, as openssl prints it."""

from __future__ import annotations

import hashlib
import re
import ssl

from journeyman.errors import ConfigError, UsageError

_PREFIX = "sha256:"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def checked_pin(text: str) -> str:
    """A hash as a person writes it, in the one form that is compared: `sha256:` and 64 hex digits.

    Raises:
        UsageError: it is no SHA-256.
    """
    digest = text.strip().lower().removeprefix(_PREFIX).replace(":", "")
    if not _DIGEST.fullmatch(digest):
        raise UsageError(
            f"--ca-hash {text!r} is no SHA-256",
            "Take it from `journeyman plane join-token`, or from openssl x509 -noout -fingerprint -sha256.",
        )
    return _PREFIX + digest


def pin_of(pem: str) -> str:
    """The hash of the first certificate of a PEM file.

    Raises:
        ConfigError: there is none.
    """
    try:
        start = pem.index(ssl.PEM_HEADER)
        end = pem.index(ssl.PEM_FOOTER, start) + len(ssl.PEM_FOOTER)
        return _PREFIX + hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem[start:end])).hexdigest()
    except ValueError as error:
        raise ConfigError(
            "the CA is no certificate in PEM format", "Name the right file with --ca-file."
        ) from error

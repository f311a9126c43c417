"""TLS contexts: whom we trust, and the certificate that we show."""

from __future__ import annotations

import contextlib
import os
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman.errors import ConfigError
from journeyman.model.access import Access

_SSL_WORDS = {"KEY_VALUES_MISMATCH": "the key is of another certificate", "NO_START_LINE": "it is no PEM"}
Certificate = tuple[str, str]
"""A client certificate and its key, as PEM texts."""


class NamedContext(ssl.SSLContext):
    """Proves the server by a name of our own, through proxies, too, whatever name the URL has."""

    server_name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002  the signature of the base class
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        named = self.server_name or server_hostname
        return super().wrap_bio(incoming, outgoing, server_side, named, session)


def context_for(access: Access, shown: Certificate | None = None) -> ssl.SSLContext:
    """The context for a control plane.

    Args:
        access: whom to trust, and the client certificate.
        shown: a client certificate in place of that one, from a plugin or from a file that changes.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    context = NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.server_name = access.tls_server_name
    if access.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif access.ca_file or access.ca_data:
        _trust(context, access)
    elif access.server.startswith("https:"):
        _trust_the_usual(context)
    if shown is not None:
        _show(context, shown, access.certificate_file or "the credential plugin")
    elif access.certificate_file or access.certificate_data:
        certificate = access.certificate_data or _text(access.certificate_file, "client certificate")
        key = access.key_data or _text(access.key_file, "client key")
        _show(context, (certificate, key), access.certificate_file or access.place)
    return context


def _trust(context: ssl.SSLContext, access: Access) -> None:
    what = f"the CA file {access.ca_file}" if access.ca_file else f"the CA in {access.place}"
    try:
        context.load_verify_locations(access.ca_file or None, cadata=access.ca_data or None)
    except (OSError, ssl.SSLError) as error:
        reason = "it holds no certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"{what} cannot be read: {reason}", "Set ca_file to a PEM file of certificates."
        ) from error


def _trust_the_usual(context: ssl.SSLContext) -> None:
    """The CAs that httpx trusts: those of the environment's SSL_CERT_FILE and SSL_CERT_DIR, or certifi's."""
    import certifi

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        with contextlib.suppress(OSError):
            context.load_verify_locations(file, folder)
            return
    context.load_verify_locations(certifi.where())


def with_contents(access: Access) -> Access:
    """The same with the content of CA, certificate and key in place of their files.

    Raises:
        ConfigError: one of them cannot be read.
    """
    changes: dict[str, Any] = {}
    for name, what in (("ca", "CA file"), ("certificate", "client certificate"), ("key", "client key")):
        if path := getattr(access, f"{name}_file"):
            changes |= {f"{name}_file": "", f"{name}_data": _text(path, what)}
    return replace(access, **changes)


def _text(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise ConfigError(
            f"the {what} {path} cannot be read: {error.strerror}", "Mend its path or its permissions."
        ) from error
    except ValueError as error:
        raise ConfigError(f"the {what} {path} is no PEM file", "Name the right file.") from error


def _show(context: ssl.SSLContext, pair: Certificate, place: str) -> None:
    import tempfile

    # OpenSSL reads files alone; this one is ours for the moment of the reading.
    with tempfile.NamedTemporaryFile(prefix="jm-", suffix=".pem") as file:
        file.write("\n".join(pair).encode())
        file.flush()
        try:
            context.load_cert_chain(file.name, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise ConfigError(
                f"the client certificate of {place} cannot be used: {_SSL_WORDS.get(reason, reason)}",
                "Take certificate and key from their source again.",
            ) from error


def _no_password() -> str:
    raise ValueError("the key has a password, which nobody could type here")

"""The CA of a plane that nobody has told us of yet: fetched from a server that is not trusted until then."""

from __future__ import annotations

import ssl
import sys

from journeyman.core.api_errors import unreachable
from journeyman.errors import UnreachableError

_LARGEST_BYTES = 64 * 1024


def is_trusted(server: str, timeout_seconds: float) -> bool:
    """Whether the CAs of this system vouch for an https server; nothing secret is sent.

    Raises:
        UnreachableError: no answer came, for another reason than the certificate.
    """
    import httpx

    try:
        httpx.get(f"{server}/healthz", timeout=timeout_seconds)
    except httpx.HTTPError as error:
        if isinstance(_root(error), ssl.SSLCertVerificationError):
            return False
        raise unreachable("GET healthz", error, server=server, platform=sys.platform) from error
    return True


def fetch_ca(server: str, timeout_seconds: float) -> str:
    """The PEM that a plane serves as its CA; it proves nothing until its hash was compared.

    Raises:
        UnreachableError: no answer came, or it serves none.
    """
    import httpx

    try:
        # Nothing secret is sent, and what comes is not believed: the person compares its hash.
        reply = httpx.get(f"{server}/ca.crt", verify=False, timeout=timeout_seconds)  # noqa: S501
    except httpx.HTTPError as error:
        raise unreachable("GET ca.crt", error, server=server, platform=sys.platform) from error
    if not reply.is_success or len(reply.content) > _LARGEST_BYTES:
        raise UnreachableError(
            f"{server} has a certificate that this machine does not trust, and offers no CA",
            "Name the PEM file of the CA with --ca-file.",
        )
    return reply.text


def _root(error: BaseException) -> BaseException:
    """What lies under all that was raised from it."""
    while (below := error.__cause__ or error.__context__) is not None:
        error = below
    return error

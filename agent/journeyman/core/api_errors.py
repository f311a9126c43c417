"""What a reply of the control plane means where it is no success: one typed error, one clear sentence.

Pure: bytes and exceptions in, errors out.  The vocabulary is that of Kubernetes' `metav1.Status`.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from journeyman.errors import (
    ConflictError,
    ControlPlaneError,
    ExpiredError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)

BY_STATUS: dict[int, type[ControlPlaneError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    422: InvalidError,
}
# What only the control plane itself can know; from anything on the way to it these are no verdict.
ONLY_WITH_STATUS = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
ADVICE = {
    401: "Check token_file: the token is wrong or has expired.",
    403: "The token is valid but may not do this; grant its account the missing permission.",
    429: "The server asks for patience; nothing needs to be done.",
}
# macOS answers "no route to host" where a person has not allowed the program to talk to the local network.
ERRNO_LOCAL_NETWORK_PRIVACY = 65
LONGEST_QUOTE = 200
LONGEST_RETRY_AFTER_SECONDS = 600.0


def object_of(what: str, body: bytes) -> dict[str, Any]:
    """The JSON object in a body.

    Args:
        what: the request in a few words, for the message.
        body: what the server sent.

    Raises:
        ControlPlaneError: it is something else: HTML of a proxy, half an object, nothing.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ControlPlaneError(
            f"{what}: the server answered with {_kind_of(body)} instead of JSON",
            "Check that server is the address of the control plane and that no proxy answers for it.",
        ) from error
    if not isinstance(value, dict):
        raise ControlPlaneError(f"{what}: the server answered with JSON that is no object")
    return value


def error_for(what: str, status: int, body: bytes, headers: Mapping[str, str]) -> ControlPlaneError:
    """The error that a reply outside 200-299 stands for.

    Args:
        what: the request in a few words, for the message.
        status: the HTTP status.
        body: what the server sent; a `Status` object if it is a control plane.
        headers: with lower-case names or case-insensitive.
    """
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return ControlPlaneError(
            f"{what}: the server redirects to {headers.get('location', 'nowhere')!r}, which is not followed",
            "Set server to the final address.",
            status=status,
        )
    reply = _status_object(body)
    if status == HTTPStatus.NOT_FOUND and reply is None:
        # A missing object is a Status; a bare 404 means that nobody serves this path at all.
        return ControlPlaneError(
            f"{what}: the server does not know this path",
            "Check the path of server, and that the CustomResourceDefinitions are installed.",
            status=status,
        )
    reply = reply or {}
    reason = _text(reply.get("reason"))
    detail = _text(reply.get("message")) or f"the server answered with {_kind_of(body)}"
    unproven = not reply and status in ONLY_WITH_STATUS
    kind = ControlPlaneError if unproven else BY_STATUS.get(status, ControlPlaneError)
    return kind(
        f"{what}: {detail} (HTTP {status}{', ' + reason if reason else ''})",
        ADVICE.get(status, ""),
        status=status,
        reason=reason,
        retry_after_seconds=_seconds(headers.get("retry-after"), headers.get("date")),
    )


def error_in_watch(what: str, status: Mapping[str, Any]) -> ControlPlaneError:
    """The error that an ERROR event inside a stream of status 200 stands for."""
    code = status.get("code")
    return error_for(what, code if isinstance(code, int) else 500, json.dumps(status).encode(), {})


def unreachable(what: str, cause: BaseException, *, server: str, platform: str) -> UnreachableError:
    """The error for a request to which no whole answer came.

    Args:
        what: the request in a few words, for the message.
        cause: what the HTTP library raised; the reason lies somewhere in its chain.
        server: the base URL.
        platform: `sys.platform`.
    """
    chain = list(_chain(cause))
    for error in chain:
        if isinstance(error, ssl.SSLCertVerificationError):
            return UnreachableError(
                f"{what}: the certificate of {server} is not trusted: {_ssl_reason(error)}",
                "Set ca_file to the PEM file of the CA that signed it.",
            )
        # A handshake that is cut short leaves "want read" in the chain, which says nothing about TLS.
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLWantReadError):
            return UnreachableError(
                f"{what}: no TLS with {server}: {_ssl_reason(error)}",
                "Check that server says https only where the server speaks TLS, and its port.",
            )
        if platform == "darwin" and getattr(error, "errno", None) == ERRNO_LOCAL_NETWORK_PRIVACY:
            return UnreachableError(
                f"{what}: macOS does not let this program reach {server} (errno 65, Local Network Privacy)",
                "Allow it in System Settings > Privacy & Security > Local Network, or install a daemon.",
            )
    return UnreachableError(
        f"{what}: no answer from {server}: {_reason_of(chain)}",
        "Check that the control plane runs and can be reached.",
    )


def _ssl_reason(error: ssl.SSLError) -> str:
    """OpenSSL sets these attributes; an error that Python itself raises has none of them."""
    return getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)


def _reason_of(chain: list[BaseException]) -> str:
    """What the system said if it said anything; else what the library said."""
    if any(isinstance(error, TimeoutError) for error in chain):
        return "timed out"
    if any(isinstance(error, ConnectionRefusedError) for error in chain):
        return "connection refused"
    said = [error.strerror for error in chain if isinstance(error, OSError) and error.strerror]
    return said[-1] if said else str(chain[0]) or type(chain[0]).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and all that caused it, groups included: asyncio reports one error for each address."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for member in error.exceptions:
                yield from _chain(member)
        error = error.__cause__ or error.__context__


def _status_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("kind") == "Status" else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _kind_of(body: bytes) -> str:
    start = body[:LONGEST_QUOTE].decode(errors="replace").strip()
    if not start:
        return "an empty body"
    if start[0] == "<":
        return "a web page"
    if start[0] == "{":
        return "a broken JSON object"
    return f"the text {' '.join(start.split())!r}"


def _seconds(value: str | None, date: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, counts from the Date of the same reply.

    Nobody is obeyed for longer than LONGEST_RETRY_AFTER_SECONDS, as a slip there would silence us for good.
    """
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), LONGEST_RETRY_AFTER_SECONDS)
    try:
        wait = (parsedate_to_datetime(value) - parsedate_to_datetime(date or "")).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(max(wait, 0.0), LONGEST_RETRY_AFTER_SECONDS)

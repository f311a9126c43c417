"""Replies: JSON, `Status` objects for errors, and tables where the client asks for one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from journeyman.errors import ControlPlaneError
from journeyman_plane.core import status
from journeyman_plane.errors import RequestError

_MOST_WARNINGS = 20
_REASONS = {404: "NotFound", 405: "MethodNotAllowed", 413: "RequestEntityTooLarge"}


def json_response(body: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A reply in compact JSON."""
    return Response(encode(body), code, headers, media_type="application/json")


def encode(body: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(body, separators=(",", ":")).encode()


def warnings_header(warnings: list[str]) -> dict[str, str]:
    """The `Warning` header (RFC 7234 §5.5) in which kubectl finds what it prints to the person."""
    # JSON quotes as the header does, and leaves nothing but ASCII: the names are the client's.
    quoted = [f"299 - {json.dumps(text)}" for text in warnings[:_MOST_WARNINGS]]
    return {"Warning": ", ".join(quoted)} if quoted else {}


def wants_table(request: Request) -> bool:
    """Whether the client prefers a Table.  Raises RequestError (406) if it takes no JSON at all."""
    accepted = [
        {part.strip() for part in each.split(";")} for each in request.headers.get("accept", "*/*").split(",")
    ]
    readable = [parts for parts in accepted if parts & {"application/json", "application/*", "*/*"}]
    if not readable:
        raise RequestError("only application/json is served here", status=406, reason="NotAcceptable")
    return {"as=Table", "g=meta.k8s.io", "v=v1"} <= readable[0]


async def on_error(request: Request, error: Exception) -> Response:
    """The reply for an error that a handler raised."""
    if isinstance(error, HTTPException):
        code = error.status_code
        error = RequestError(error.detail, status=code, reason=_REASONS.get(code, "BadRequest"))
    elif not isinstance(error, ControlPlaneError):
        error = RequestError("internal error; see the log of the plane", status=500, reason="InternalError")
    target = getattr(request.state, "target", None)
    return json_response(status.failure(error, target), error.status)

"""Request bodies: their type, their size and their JSON."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request

from journeyman_plane.errors import RequestError

JsonObject = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"


async def read_object(request: Request, limit: int) -> JsonObject:
    """The body as a JSON object; an empty body is an empty object.

    Raises:
        RequestError: 413 over `limit` bytes, 400 for anything that is no JSON object.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise RequestError(
                f"Request entity too large: limit is {limit}", status=413, reason="RequestEntityTooLarge"
            )
    try:
        parsed = json.loads(body or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error}", status=400, reason="BadRequest") from error
    if not isinstance(parsed, dict):
        raise RequestError("the body must be a JSON object", status=400, reason="BadRequest")
    return parsed


def _refuse_constant(name: str) -> None:
    """Python reads NaN and Infinity, which are no JSON, and would write them again."""
    raise ValueError(f"{name} is no JSON value")


def check_type(request: Request, *supported: str) -> None:
    """Raises RequestError (415) unless the body is of one of these types, or says nothing of its type."""
    given = request.headers.get("content-type", supported[0]).split(";")[0].strip().lower()
    if given not in supported:
        raise RequestError(
            f"the body was in an unknown format ({given}); accepted here: {', '.join(supported)}",
            status=415,
            reason="UnsupportedMediaType",
        )


def check_strategic(patch: Any) -> None:
    """Refuses a strategic merge patch that means something else than a plain merge patch would.

    Kubernetes merges some lists by key and knows `$`-directives; nothing here needs either.

    Raises:
        RequestError: 415 for a patch with directives.
    """
    if isinstance(patch, list):
        for each in patch:
            check_strategic(each)
    elif isinstance(patch, dict):
        for name, value in patch.items():
            if name.startswith("$"):
                raise RequestError(
                    f"the directive {name} of strategic merge patches is not served here; use {MERGE_PATCH}",
                    status=415,
                    reason="UnsupportedMediaType",
                )
            check_strategic(value)

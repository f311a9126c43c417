"""Whether a request is granted."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from journeyman_updater.contract.allow import ALLOW
from journeyman_updater.core.repeats import check_over
from journeyman_updater.errors import Reason, RequestError
from journeyman_updater.model.release import UpdateRequest, VersionId, parse_sha256
from journeyman_updater.model.state import StateDocument


class Grant(Enum):
    """Answers that are no refusal; a refusal is a `RequestError`."""

    GRANTED = auto()
    """Go on with it."""
    NOT_NEEDED = auto()
    """These very bytes are active, or on trial."""
    LATER = auto()
    """Another trial has to end first."""


def decide(request: UpdateRequest, document: StateDocument) -> Grant:
    """Judges by content first: the same bytes are the same release, whatever the version is called.

    Raises:
        RequestError: Denylisted, AttemptsExhausted or Pinned.
    """
    status, pin = document.status, document.spec.pin
    if status.trial is not None:
        return Grant.NOT_NEEDED if status.trial.sha256 == request.sha256 else Grant.LATER
    if status.active is not None and status.active.sha256 == request.sha256:
        return Grant.NOT_NEEDED
    if status.has_rejected(request.sha256):
        raise RequestError(
            Reason.DENYLISTED,
            f"{request.version.spelled} ({request.sha256[:12]}) was tried here and failed by itself",
            f"Build a new release, run `journeyman update allow {request.sha256}`, or annotate the node with "
            f"{ALLOW}.",
        )
    if undone := status.undone_of(request.sha256):
        check_over(undone)
    if pin is not None and VersionId(pin).canonical != request.version.canonical:
        raise RequestError(
            Reason.PINNED,
            f"this host is pinned to {pin}, and {request.version.spelled} was asked for",
            "Run `journeyman update unpin` to let it move.",
        )
    return Grant.GRANTED


def request_of(node: Mapping[str, Any], name: str) -> UpdateRequest | None:
    """The updateRequest of this host's own FleetNode, or None if it carries none.

    Args:
        node: the object as the API returned it.
        name: of this host's FleetNode.

    Raises:
        RequestError: BadRequest; it is another node's object, or the request is malformed.
    """
    metadata = node.get("metadata") or {}
    found = metadata.get("name")
    if found != name:
        raise _bad(f"the answer is about node {found!r}, and this host is {name!r}")
    wish = (node.get("status") or {}).get("updateRequest")
    if not wish:
        return None
    try:
        request = UpdateRequest(
            VersionId(wish["targetVersion"]),
            str(wish["url"]),
            parse_sha256(wish["sha256"]),
            str((metadata.get("annotations") or {}).get(ALLOW, "")),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise _bad(f"the updateRequest lacks a field: {error!r}") from error
    except ValueError as error:
        raise _bad(str(error)) from error
    if not request.url.startswith(("https://", "http://")):
        # A file of this host is for people at this host to name.
        raise _bad(f"{request.url[:80]!r} is no http or https URL")
    return request


def _bad(message: str) -> RequestError:
    return RequestError(Reason.BAD_REQUEST, message, "Correct the AgentRelease; this host goes on as it is.")

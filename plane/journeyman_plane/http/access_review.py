"""SelfSubjectAccessReview: `kubectl auth can-i`, and what `journeyman preflight` asks."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from journeyman_plane.core import node_limits
from journeyman_plane.core.paths import Target
from journeyman_plane.http import bodies
from journeyman_plane.http.api import Api
from journeyman_plane.http.auth import ADMIN
from journeyman_plane.http.replies import json_response

JsonObject = dict[str, Any]


async def access_review(api: Api, request: Request) -> Response:
    """Whether whoever asks may do something; the admin may do everything."""
    head = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1"}
    if request.state.node == ADMIN:
        # The answer does not depend on the question, which kubectl asks in protobuf.
        return json_response(head | {"spec": {}, "status": {"allowed": True}}, 201)
    bodies.check_type(request, "application/json")
    asked = await bodies.read_object(request, api.largest_body_bytes)
    match asked:
        case {"spec": {"resourceAttributes": dict(what)}}:
            why = _refusal(api, request.state.node, what)
        case _:
            why = "only questions about resources are answered here"
    verdict = {"allowed": not why} | ({"reason": why} if why else {})
    return json_response(head | {"spec": asked.get("spec"), "status": verdict}, 201)


def _refusal(api: Api, node: str, asked: JsonObject) -> str:
    place = asked.get("group", ""), asked.get("resource", "")
    found = next((each for each in api.registry.resources if (each.group, each.plural) == place), None)
    if found is None:
        return f"{place[1] or 'this'} is not served here"
    target = Target(found, asked.get("namespace", ""), asked.get("name", ""), asked.get("subresource", ""))
    return node_limits.refusal(node, asked.get("verb", ""), target)

"""How a machine becomes a node: a join token, spent for a credential that is bound to one name."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from journeyman.errors import ConflictError, NotFoundError
from journeyman.model.fleet_node import INSTANCE_ANNOTATION, FleetNode
from journeyman.model.meta import format_time
from journeyman.model.resources import FLEET_NODES
from journeyman_plane.core import credentials
from journeyman_plane.core.credentials import Credential
from journeyman_plane.errors import RequestError
from journeyman_plane.http import bodies
from journeyman_plane.http.api import Api
from journeyman_plane.http.replies import json_response
from journeyman_plane.ports import JsonObject, Key, Preconditions

LONGEST_LIFE_SECONDS = 30 * 86_400
DEFAULT_LIFE_SECONDS = 3600


async def mint(api: Api, request: Request) -> Response:
    """Makes a join token.  Only the admin gets here.

    The body names `ttlSeconds`, and with `node` the only name that the token admits.
    """
    asked = await bodies.read_object(request, api.largest_body_bytes)
    life, node = asked.get("ttlSeconds", DEFAULT_LIFE_SECONDS), asked.get("node", "")
    if type(life) is not int or not 0 < life <= LONGEST_LIFE_SECONDS:
        raise _bad(f"ttlSeconds must be a whole number from 1 to {LONGEST_LIFE_SECONDS}")
    if node:
        _check_name(node)
    now = api.clock.now()
    _forget_expired(api)
    expires = now + timedelta(seconds=life)
    token = Credential("join", secrets.token_hex(5), secrets.token_urlsafe(32))
    api.store.create(token.key, token.to_secret(expires=expires, bound_to=node))
    return json_response({"token": token.text, "expires": format_time(expires), "node": node}, 201)


async def join(api: Api, request: Request) -> Response:
    """Takes a join token, as a bearer token, for the credential that the body proposes.

    The same credential again gets the same answer, without a token: the first one may have been lost.
    """
    asked = await bodies.read_object(request, api.largest_body_bytes)
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    name, instance = asked.get("name"), asked.get("instance")
    _check_name(name)
    wanted = credentials.parse(str(asked.get("credential")), "node")
    if wanted is None or wanted.name != name or not isinstance(instance, str) or not instance:
        raise _bad("a credential of the form node.<name>.<43 characters> and an instance are needed")
    known = _stored(api, wanted.key)
    if known is None or not wanted.is_known_by(known):
        _admit(api, given, wanted, instance, known)
    facts = {"name": name, "releaseKey": api.release_public_key, "caCertificate": _ca(api)}
    return json_response(facts, 201)


async def revoke(api: Api, request: Request) -> Response:
    """Ends a node's credential; the admin may do that, and the node itself."""
    name = request.path_params["name"]
    _check_name(name)
    try:
        api.store.delete(Credential("node", name, "").key)
    except NotFoundError as error:
        raise NotFoundError(f"node {name} has no credential", status=404, reason="NotFound") from error
    return json_response({"revoked": name})


async def serve_ca(api: Api, _: Request) -> Response:
    """The certificate of the CA, for those who compare its hash; 404 without TLS."""
    pem = _ca(api)
    if not pem:
        raise RequestError("this plane has no CA: it serves plain http", status=404, reason="NotFound")
    return PlainTextResponse(pem, media_type="application/x-pem-file")


def _admit(api: Api, given: str, wanted: Credential, instance: str, known: JsonObject | None) -> None:
    """Spends the token and keeps the credential.  Nothing is awaited in between, so no one else gets in."""
    token = credentials.parse(given, "join")
    stored = None if token is None else _stored(api, token.key)
    if token is None or stored is None or not token.is_known_by(stored):
        raise RequestError("the join token is wrong, or was spent", status=401, reason="Unauthorized")
    if credentials.has_expired(stored, api.clock.now()):
        raise RequestError("the join token has expired", status=401, reason="Unauthorized")
    bound_to = credentials.fact(stored, "node")
    if bound_to not in {"", wanted.name}:
        raise RequestError(f"the join token is for node {bound_to} alone", status=403, reason="Forbidden")
    if known is not None and not bound_to:
        # A token for anyone must not take the name of somebody who is here.
        raise _conflict(f"node {wanted.name} has joined already; only a token for that name replaces it")
    _refuse_if_taken(api, wanted.name, instance)
    api.store.delete(token.key, Preconditions(resource_version=stored["metadata"]["resourceVersion"]))
    if known is None:
        api.store.create(wanted.key, wanted.to_secret())
    else:
        api.store.update(wanted.key, lambda current: _replaced(current, wanted.to_secret()))


def _replaced(current: JsonObject, secret: Mapping[str, Any]) -> JsonObject:
    return {**current, "data": secret["data"], "type": secret["type"]}


def _refuse_if_taken(api: Api, name: str, instance: str) -> None:
    stored = _stored(api, Key(FLEET_NODES.group, FLEET_NODES.plural, "", name))
    if stored is None:
        return
    node = FleetNode.from_wire(stored)
    is_same = node.metadata.annotations.get(INSTANCE_ANNOTATION) == instance
    if not is_same and not node.heartbeat_is_stale(api.clock.now()):
        raise _conflict(f"another agent beats as FleetNode {name}", reason="NameTaken")


def _forget_expired(api: Api) -> None:
    found, _ = api.store.select("", "secrets", credentials.NAMESPACE)
    for secret in found:
        if secret.get("type") == credentials.JOIN_TYPE and credentials.has_expired(secret, api.clock.now()):
            with suppress(NotFoundError):
                api.store.delete(Key("", "secrets", credentials.NAMESPACE, secret["metadata"]["name"]))


def _stored(api: Api, key: Key) -> JsonObject | None:
    try:
        return api.store.get(key)
    except NotFoundError:
        return None


def _ca(api: Api) -> str:
    return "" if api.ca_file is None else api.ca_file.read_text(encoding="ascii")


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not credentials.NODE_NAME.fullmatch(name):
        raise _bad("the name of a node is 1 to 63 lower-case letters, digits and hyphens")


def _bad(why: str) -> RequestError:
    return RequestError(why, status=400, reason="BadRequest")


def _conflict(why: str, reason: str = "AlreadyExists") -> ConflictError:
    return ConflictError(why, status=409, reason=reason)

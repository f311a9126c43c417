"""Who asks: the admin, a node, or nobody; nobody is told nothing but the health and the CA of the plane."""

from __future__ import annotations

import base64
import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from journeyman.errors import NotFoundError
from journeyman_plane.core import credentials, node_limits, status
from journeyman_plane.errors import RequestError
from journeyman_plane.http.replies import json_response
from journeyman_plane.ports import Store

BASIC_USER = "admin"
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
# Joining has a token of its own; a CA is no secret, and whoever joins compares its hash.
OPEN_PATHS = HEALTH_PATHS | {"/ca.crt", "/join"}
ADMIN = ""


class BearerAuth:
    """Answers 401 to every request without a credential, and 403 to a node that asks for what is not its own.

    The admin's token is taken as a bearer token, and as the password of Basic authentication (RFC 7617): over
    plain http kubectl never sends a bearer token, but does send what the URL of its kubeconfig carries.
    Handlers find who asks in `request.state.node`: the name of a FleetNode, or `ADMIN`.

    Args:
        app: what serves those that do.
        token: the secret of the admin.
        store: where the credentials of nodes are known by their hash.
    """

    def __init__(self, app: ASGIApp, token: str, store: Store) -> None:
        self._app = app
        self._store = store
        basic = base64.b64encode(f"{BASIC_USER}:{token}".encode())
        self._bearer, self._basic = f"Bearer {token}".encode(), b"Basic " + basic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        node = self._node_of(scope)
        if node is None:
            error = RequestError("Unauthorized", status=401, reason="Unauthorized")
        elif node == ADMIN or node_limits.may_ask(node, scope["method"], scope["path"]):
            scope.setdefault("state", {})["node"] = node
            await self._app(scope, receive, send)
            return
        else:
            why = f'forbidden: node "{node}" may not {scope["method"]} {scope["path"]}'
            error = RequestError(why, status=403, reason="Forbidden")
        headers = {"WWW-Authenticate": "Bearer"} if node is None else {}
        await json_response(status.failure(error), error.status, headers)(scope, receive, send)

    def _node_of(self, scope: Scope) -> str | None:
        """Who asks; None if nobody that we know."""
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        # Both are compared, whatever the first says, so that the time tells nothing.
        as_bearer = hmac.compare_digest(given, self._bearer)
        as_basic = hmac.compare_digest(given, self._basic)
        if as_bearer or as_basic:
            return ADMIN
        credential = credentials.parse(given.removeprefix(b"Bearer ").decode("latin-1"), "node")
        if credential is None:
            return None
        try:
            stored = self._store.get(credential.key)
        except NotFoundError:
            return None
        return credential.name if credential.is_known_by(stored) else None

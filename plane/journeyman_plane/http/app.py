"""The routes of the API server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from journeyman.errors import ControlPlaneError
from journeyman_plane.core import discovery, node_limits, openapi, paths
from journeyman_plane.errors import RequestError
from journeyman_plane.http import joining, objects
from journeyman_plane.http.access_review import access_review
from journeyman_plane.http.api import Api
from journeyman_plane.http.artifacts import METHODS as ARTIFACT_METHODS
from journeyman_plane.http.artifacts import serve_artifact
from journeyman_plane.http.auth import HEALTH_PATHS, BearerAuth
from journeyman_plane.http.metrics import exposition
from journeyman_plane.http.replies import json_response, on_error
from journeyman_plane.http.traffic import CountTraffic
from journeyman_plane.http.watch import watch

Handler = Callable[[Request], Awaitable[Response]]
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]

# (method, whether an object is named) -> the verb, as metrics count it, and what serves it.
_VERBS: dict[tuple[str, bool], tuple[str, Callable[[objects.Call], Awaitable[Response]]]] = {
    ("GET", True): ("get", objects.get),
    ("GET", False): ("list", objects.list_objects),
    ("POST", False): ("create", objects.create),
    ("PUT", True): ("update", objects.replace),
    ("PATCH", True): ("patch", objects.patch),
    ("DELETE", True): ("delete", objects.delete),
}


def build_app(api: Api, token: str) -> Starlette:
    """The ASGI application: all but health, CA and joining needs the admin's token or a node's credential."""
    routes = [
        *(Route(path, _healthy) for path in sorted(HEALTH_PATHS)),
        Route("/metrics", _metrics(api)),
        Route("/ca.crt", _with(api, joining.serve_ca)),
        Route("/join", _with(api, joining.join), methods=["POST"]),
        Route("/join-tokens", _with(api, joining.mint), methods=["POST"]),
        Route("/node-credentials/{name}", _with(api, joining.revoke), methods=["DELETE"]),
        Route("/artifacts/{version}/{name}", _with(api, serve_artifact), methods=ARTIFACT_METHODS),
        Route("/version", _fixed(lambda _: _version(api))),
        Route("/api", _fixed(lambda _: discovery.core_versions())),
        Route("/apis", _fixed(lambda _: discovery.group_list(api.registry))),
        Route("/api/v1", _fixed(lambda _: discovery.resource_list(api.registry, "", "v1"))),
        Route("/apis/{group}", _fixed(lambda at: discovery.group(api.registry, at["group"]))),
        Route(
            "/apis/{group}/{version}",
            _fixed(lambda at: discovery.resource_list(api.registry, at["group"], at["version"])),
        ),
        Route("/openapi/v2", _fixed(lambda _: openapi.version_2(api.registry))),
        Route("/openapi/v3", _fixed(lambda _: openapi.index(api.registry))),
        Route("/openapi/v3/{path:path}", _fixed(lambda at: openapi.version_3(api.registry, at["path"]))),
        Route(
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            _with(api, access_review),
            methods=["POST"],
        ),
        Route("/api/v1/{path:path}", _objects(api), methods=_METHODS),
        Route("/apis/{group}/{version}/{path:path}", _objects(api), methods=_METHODS),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(CountTraffic, api=api), Middleware(BearerAuth, token=token, store=api.store)],
        exception_handlers={ControlPlaneError: on_error, HTTPException: on_error, Exception: on_error},
    )


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok")


def _metrics(api: Api) -> Handler:
    async def endpoint(_: Request) -> Response:
        return PlainTextResponse(exposition(api), media_type="text/plain; version=0.0.4")

    return endpoint


def _with(api: Api, serve: Callable[[Api, Request], Awaitable[Response]]) -> Handler:
    async def endpoint(request: Request) -> Response:
        return await serve(api, request)

    return endpoint


def _fixed(document: Callable[[dict[str, Any]], Any]) -> Handler:
    """A handler for a document that depends on the path alone."""

    async def endpoint(request: Request) -> Response:
        found = document(request.path_params)
        if found is None:
            raise _nothing_served()
        return json_response(found)

    return endpoint


def _objects(api: Api) -> Handler:
    async def endpoint(request: Request) -> Response:
        target = paths.parse(request.scope["path"], api.registry)
        if target is None:
            raise _nothing_served()
        request.state.target = target
        verb, serve = _VERBS.get((request.method, bool(target.name)), ("", None))
        if serve is None:
            raise RequestError(
                f"{request.method} is not served for {target.resource.qualified} here",
                status=405,
                reason="MethodNotAllowed",
            )
        if verb == "list" and request.query_params.get("watch") in {"true", "1"}:
            verb, serve = "watch", watch
        node = request.state.node
        if node and (why := node_limits.refusal(node, verb, target)):
            raise node_limits.forbidden(target, why)
        api.requests[verb, target.resource.plural] += 1
        return await serve(objects.Call(api, request, target, node))

    return endpoint


def _version(api: Api) -> dict[str, str]:
    # kubectl warns where its own version is more than one off, so this names the release of Kubernetes
    # whose API is served in part, and after it the program that serves it.
    unknown = dict.fromkeys(
        ("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform"), ""
    )
    return unknown | {"major": "1", "minor": "36", "gitVersion": f"v1.36.0+journeyman-{api.version}"}


def _nothing_served() -> RequestError:
    return RequestError("the server could not find the requested resource", status=404, reason="NotFound")

"""The artifact store over HTTP: `/artifacts/<version>/<name>`, with the signature beside as `<name>.minisig`.

A PUT is streamed to disk.  A GET answers ranges under a strong ETag, which is the SHA-256, so that an
updater goes on where a transfer broke off.
"""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response

from journeyman_plane.errors import RequestError
from journeyman_plane.http.api import Api
from journeyman_plane.http.replies import json_response
from journeyman_plane.ports import Artifact, Upload

METHODS = ["GET", "HEAD", "PUT"]
_CHUNK_BYTES = 1024**2


async def serve_artifact(api: Api, request: Request) -> Response:
    """Answers GET, HEAD and PUT for one artifact.

    Raises:
        ControlPlaneError: as the port Artifacts says.
    """
    version, name = request.path_params["version"], request.path_params["name"]
    verb = "update" if request.method == "PUT" else "get"
    api.requests[verb, "artifacts"] += 1
    if request.method == "PUT":
        with api.artifacts.receive(version, name) as upload:
            artifact, is_new = await _take(request, upload)
        facts = {"version": version, "name": name, "sha256": artifact.sha256, "size": artifact.size}
        return json_response(facts, 201 if is_new else 200, {"ETag": _etag(artifact)})
    artifact = await asyncio.to_thread(api.artifacts.find, version, name)
    headers = {"ETag": _etag(artifact)}
    if request.headers.get("if-none-match") == _etag(artifact):
        return Response(status_code=304, headers=headers)
    return FileResponse(artifact.path, headers=headers, media_type="application/octet-stream")


async def _take(request: Request, upload: Upload) -> tuple[Artifact, bool]:
    waiting = bytearray()
    try:
        async for chunk in request.stream():
            waiting += chunk
            if len(waiting) >= _CHUNK_BYTES:
                await asyncio.to_thread(upload.write, bytes(waiting))
                waiting.clear()
    except ClientDisconnect as error:
        raise RequestError("the upload broke off", status=400, reason="BadRequest") from error
    await asyncio.to_thread(upload.write, bytes(waiting))
    return await asyncio.to_thread(upload.keep)


def _etag(artifact: Artifact) -> str:
    return f'"{artifact.sha256}"'

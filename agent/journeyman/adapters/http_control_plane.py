"""The `ControlPlane` port on HTTP: the Kubernetes REST API as far as an agent needs it.

Nothing is retried, redirected or cached here.  httpx is imported with the first request, as an agent must
be ready without a network.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit

from journeyman.adapters.access import access_of
from journeyman.adapters.client_certificate import expired_refusal
from journeyman.adapters.credentials import Held, credential_of
from journeyman.adapters.tls import Certificate, context_for
from journeyman.core.api_errors import error_for, error_in_watch, object_of, unreachable
from journeyman.core.clock_offset import ClockOffset
from journeyman.core.server_url import is_loopback
from journeyman.core.service_account_token import expiry_of
from journeyman.errors import ConfigError, ControlPlaneError, UnauthorizedError
from journeyman.model.access import Access
from journeyman.ports import Clock, Collection, JsonObject, ObjectList, ObjectRef, WatchEvent
from journeyman.settings import Settings

if TYPE_CHECKING:
    import httpx

MERGE_PATCH = "application/merge-patch+json"
# The server flushes the file before it answers, which takes a slow disk its time.
UPLOAD_STALL_SECONDS = 60.0
UPLOAD_CHUNK_BYTES = 256 * 1024
# A slow link may take long for a large body; in pieces, every piece that gets through shows that it lives.
PIECE_BYTES = 16 * 1024


class HttpControlPlane:
    """The API server that settings, a kubeconfig or the cluster around us name, see `access_of`.

    Args:
        settings: how to reach it, and the timeouts.
        clock: for the offset to the server's clock.
        version: ours, for the User-Agent header.
        environ: where $KUBECONFIG and the home are looked for; this process's where it is left out.
        access: how it is reached, in place of what they say.

    Attributes:
        access: what was found.

    Raises:
        ConfigError: there is no server, or what proves it or us cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        *,
        version: str,
        environ: Mapping[str, str] | None = None,
        platform: str = sys.platform,
        access: Access | None = None,
    ) -> None:
        self.access = access or access_of(settings, os.environ if environ is None else environ)
        self._server = self.access.server
        self._credential = credential_of(
            self.access, clock, plugin_seconds=settings.credential_plugin_timeout_seconds
        )
        # What a person has named is looked at now; the CAs of this system can wait for the first request.
        self._shown: Certificate | None = self._credential.shown()
        self._context = context_for(self.access, self._shown) if _names_files(self.access) else None
        self._timeout_seconds = settings.request_timeout_seconds
        self._watch_seconds = settings.watch_seconds
        self._watch_stall_seconds = settings.watch_stall_seconds
        self._clock = clock
        self._user_agent = f"journeyman/{version}"
        self._platform = platform
        self._client: httpx.AsyncClient | None = None
        self._offset = ClockOffset()

    def held(self) -> Held:
        """What is sent at this moment; see `NodeFileKeeper`."""
        return self._credential.held()

    async def aclose(self) -> None:
        """Closes the connections; a later call would open new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def get(self, ref: ObjectRef) -> JsonObject:
        return await self._call("GET", _path(ref.collection, ref.name))

    async def list(self, collection: Collection, *, label_selector: str = "") -> ObjectList:
        reply = await self._call("GET", _path(collection), query=_selector(label_selector))
        items, version = reply.get("items"), _resource_version(reply)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items) or not version:
            raise ControlPlaneError(f"GET {collection.plural}: the server answered with JSON that is no list")
        return ObjectList(items, version)

    async def create(self, collection: Collection, body: Mapping[str, Any]) -> JsonObject:
        return await self._call("POST", _path(collection), body=body)

    async def patch(self, ref: ObjectRef, body: Mapping[str, Any], *, subresource: str = "") -> JsonObject:
        return await self._call("PATCH", _path(ref.collection, ref.name, subresource), body=body)

    async def delete(self, ref: ObjectRef) -> None:
        await self._call("DELETE", _path(ref.collection, ref.name))

    async def watch(
        self,
        collection: Collection,
        *,
        resource_version: str,
        label_selector: str = "",
        bookmarks: bool = True,
    ) -> AsyncGenerator[WatchEvent, None]:
        """As the port says; the server is asked to end the stream after `watch_seconds`.

        With bookmarks a stream is dead after `watch_stall_seconds` without a byte; without them only the
        end that was asked for is overdue at some time.
        """
        what = f"WATCH {collection.plural}"
        silence = self._watch_stall_seconds if bookmarks else self._watch_seconds + self._timeout_seconds
        query = {
            "watch": "true",
            "allowWatchBookmarks": str(bookmarks).lower(),
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(self._watch_seconds))),
            **_selector(label_selector),
        }
        with self._explained(what):
            headers = await self._credential.headers()
            client = await self._open_client()
            request = client.build_request(
                "GET",
                self._server + _path(collection),
                params=query,
                headers=headers,
                # Connect, write and pool are bounded below with the wait for the first byte.
                timeout=silence,
            )
            async with asyncio.timeout(self._timeout_seconds):
                response = await client.send(request, stream=True)
            try:
                if response.status_code != HTTPStatus.OK:
                    async with asyncio.timeout(self._timeout_seconds):
                        await response.aread()
                    raise self._refusal(what, response)
                async for line in _lines(response.aiter_bytes()):
                    yield _event(what, line)
            finally:
                await response.aclose()

    async def post(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Asks for something that is no object of a collection, such as an access review or a join.

        Args:
            path: below the server's URL.
            body: what is asked.

        Raises:
            ControlPlaneError: it was refused, or no answer came.
        """
        return await self._call("POST", path, body=body)

    async def remove(self, path: str) -> JsonObject:
        """Deletes something that is no object of a collection; as `post` otherwise."""
        return await self._call("DELETE", path)

    async def put_file(self, path: str, source: Path) -> JsonObject:
        """Streams a file to the server; there is no total deadline, as only silence says that it is lost.

        Args:
            path: below the server's URL, such as that of an artifact.
            source: the file.

        Raises:
            ControlPlaneError: it was refused, or did not arrive.
            OSError: the file cannot be read.
        """
        what = f"PUT {path.rpartition('/')[2]}"
        size = source.stat().st_size  # noqa: ASYNC240  # A local file, for a command that does nothing else.
        headers = await self._credential.headers() | {"Content-Length": str(size)}
        with source.open("rb") as file, self._explained(what):
            client = await self._open_client()
            response = await client.put(
                self._server + path, content=_chunks(file), headers=headers, timeout=UPLOAD_STALL_SECONDS
            )
        if not response.is_success:
            raise self._refusal(what, response)
        return object_of(what, response.content)

    def clock_offset_seconds(self) -> float:
        return self._offset.reported()

    def last_offset_seconds(self) -> float:
        """As `clock_offset_seconds`, by the last reply alone: for a command that makes no other one."""
        return self._offset.by_last_reply()

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> JsonObject:
        what = f"{method} {path.split('/', 4)[-1]}"
        headers = dict(await self._credential.headers())
        if body is not None:
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        content = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Length"] = str(len(data))
            content = _pieces(data)
        with self._explained(what):
            client = await self._open_client()
            sent_at = self._clock.now()
            response = await client.request(
                method, self._server + path, params=query, content=content, headers=headers
            )
        if not response.is_success:
            raise self._refusal(what, response)
        reply = object_of(what, response.content)
        self._note_date(response.headers.get("date"), sent_at)
        return reply

    def _refusal(self, what: str, response: httpx.Response) -> ControlPlaneError:
        error = error_for(what, response.status_code, response.content, response.headers)
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            return error
        self._credential.forget()
        now = self._clock.now() + timedelta(seconds=self.clock_offset_seconds())
        shown = response.request.headers.get("authorization", "").removeprefix("Bearer ")
        return self._expired(error) or expiry_of(shown, error, now) or error

    def _expired(self, error: ControlPlaneError) -> ControlPlaneError | None:
        """The same with its reason, where the certificate in our file is over."""
        if self._shown is None or self.access.plugin is not None:
            return None
        now = self._clock.now() + timedelta(seconds=self.clock_offset_seconds())
        return expired_refusal(self._shown[0], error, now)

    def _note_date(self, text: str | None, sent_at: datetime) -> None:
        try:
            date = parsedate_to_datetime(text or "")
        except ValueError:
            return
        if date.tzinfo is None:
            return
        # The header was cut down to whole seconds at some moment between the sending and now.
        middle = sent_at + (self._clock.now() - sent_at) / 2
        self._offset = self._offset.after((date - middle).total_seconds() + 0.5)

    async def _open_client(self) -> httpx.AsyncClient:
        """The client; a new one where there is another certificate to show."""
        shown = self._credential.shown()
        if shown != self._shown:
            await self.aclose()
            self._context = None
        if self._client is None:
            httpx = _httpx()
            loopback = is_loopback(urlsplit(self._server).hostname or "")
            self._context = self._context or self._context_with(shown)
            self._shown = shown
            self._client = httpx.AsyncClient(
                verify=self._context,
                proxy=self.access.proxy_url or None,
                # Proxies of the environment are for other hosts than this one.
                trust_env=not loopback,
                follow_redirects=False,
                timeout=self._timeout_seconds,
                headers={"User-Agent": self._user_agent, "Accept": "application/json"},
            )
        return self._client

    def _context_with(self, shown: Certificate | None) -> ssl.SSLContext:
        try:
            return context_for(self.access, shown)
        except ConfigError as error:
            # At this moment; whoever prints or writes the certificate may do better the next time.
            raise UnauthorizedError(error.message, error.advice) from error

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Lets out nothing but errors of ours (and cancellation)."""
        httpx = _httpx()
        try:
            yield
        except httpx.DecodingError as error:
            raise ControlPlaneError(f"{what}: the reply cannot be unpacked: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            found = unreachable(what, error, server=self._server, platform=self._platform)
            # A server that proves its clients in the handshake hangs up where a kube-apiserver answers 401,
            # and its last words get here or not.
            hung_up = isinstance(error, httpx.ReadError) or "ALERT_CERTIFICATE_EXPIRED" in found.message
            raise (self._expired(found) if hung_up else None) or found from error


def _httpx() -> Any:
    """Imports httpx without its command line, which would load rich: 70 ms and 6 MB for nothing."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
    import httpx

    if "sniffio" not in sys.modules and find_spec("sniffio") is None:
        # httpcore looks for it several times a request, and a search through all folders costs more CPU
        # than the request itself.
        sys.modules["sniffio"] = None  # type: ignore[assignment]
    return httpx


def _names_files(access: Access) -> bool:
    return bool(access.ca_file or access.ca_data or access.certificate_file or access.certificate_data)


def _path(collection: Collection, name: str = "", subresource: str = "") -> str:
    root = f"/apis/{collection.group}" if collection.group else "/api"
    namespace = f"/namespaces/{quote(collection.namespace, safe='')}" if collection.namespace else ""
    tail = "".join(f"/{quote(part, safe='')}" for part in (collection.plural, name, subresource) if part)
    return f"{root}/{collection.version}{namespace}{tail}"


def _selector(label_selector: str) -> dict[str, str]:
    return {"labelSelector": label_selector} if label_selector else {}


def _resource_version(value: Mapping[str, Any]) -> str:
    metadata = value.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := file.read(UPLOAD_CHUNK_BYTES):
        yield chunk


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES]


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Splits at line feeds alone: JSON may hold the other characters at which `str.splitlines` splits."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
    if rest:
        yield rest


def _event(what: str, line: bytes) -> WatchEvent:
    event = object_of(what, line)
    kind, changed = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(changed, dict):
        raise ControlPlaneError(f"{what}: the server sent a line that is no watch event")
    if kind == "ERROR":
        raise error_in_watch(what, changed)
    return WatchEvent(kind, changed)

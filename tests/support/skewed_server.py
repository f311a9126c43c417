"""A server in front of a plane with a clock of its own, which its `Date` header and expiring tokens go by."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from journeyman.core.service_account_token import account_token
from tests.support.plane import RunningPlane


class SkewedServer(ThreadingHTTPServer):
    """Passes GET on to the plane: as the admin for tokens of ServiceAccounts, until they expire by its clock.

    Attributes:
        skew_seconds: how far its clock is ahead.
    """

    daemon_threads = True

    def __init__(self, plane: RunningPlane, skew_seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plane = plane
        self.skew_seconds = skew_seconds

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: SkewedServer

    def do_GET(self) -> None:
        shown = self.headers.get("Authorization", "")
        token = account_token(shown.removeprefix("Bearer "))
        if token is not None and time.time() + self.server.skew_seconds < token.expires.timestamp():
            shown = f"Bearer {self.server.plane.token}"
        reply = httpx.get(self.server.plane.url + self.path, headers={"Authorization": shown})
        self.send_response(reply.status_code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply.content)))
        self.end_headers()
        self.wfile.write(reply.content)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((timestamp or time.time()) + self.server.skew_seconds)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def skewed_server(plane: RunningPlane, skew_seconds: float) -> Iterator[SkewedServer]:
    """One that answers while the block lasts."""
    with SkewedServer(plane, skew_seconds) as server:
        thread = threading.Thread(target=server.serve_forever, name="skewed server")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

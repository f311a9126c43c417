"""A web server on loopback that serves artifacts honestly, or with one named fault."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_RANGE = re.compile(r"bytes=(\d+)-")
_PIECE_BYTES = 16 * 1024


@dataclass
class Exchange:
    """One request, with what a fault needs in order to answer it.

    Attributes:
        handler: of the standard library.
        body: the artifact that lies under this path.
        etag: the validator that an honest answer names; empty for a server without.
        closing: set when the server stops, so that a stalled answer can end.
        count: told of each piece of the body before it is sent.
    """

    handler: BaseHTTPRequestHandler
    body: bytes
    etag: str
    closing: threading.Event
    count: Callable[[int], None]

    @property
    def start(self) -> int:
        """The offset at which an honest answer begins: the Range, if the validator still fits."""
        match = _RANGE.fullmatch(self.handler.headers.get("Range", ""))
        fits = self.handler.headers.get("If-Range", self.etag) == self.etag
        return int(match[1]) if match and fits else 0

    def head(self, status: int, **headers: str) -> None:
        """Sends the head; underscores in names stand for hyphens."""
        self.handler.send_response(status)
        for name, value in headers.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.end_headers()

    def send(self, data: bytes) -> None:
        """Sends and counts a piece of the body."""
        for offset in range(0, len(data), _PIECE_BYTES):
            piece = data[offset : offset + _PIECE_BYTES]
            self.count(len(piece))
            self.handler.wfile.write(piece)

    def begin(self) -> int:
        """Sends the head of an honest answer and returns where its body starts."""
        start = self.start
        if start and start == len(self.body):
            self.head(416, Content_Length="0", Content_Range=f"bytes */{start}")
        elif start:
            last = len(self.body) - 1
            self.head(
                206,
                Content_Length=str(len(self.body) - start),
                Content_Range=f"bytes {start}-{last}/{len(self.body)}",
                ETag=self.etag,
            )
        else:
            validators = {"ETag": self.etag} if self.etag else {}
            self.head(200, Content_Length=str(len(self.body)), **validators)
        return start


Fault = Callable[[Exchange], None]


def honest(exchange: Exchange) -> None:
    """Serves the whole or the range that was asked for, or says that nothing has changed."""
    if exchange.etag and exchange.handler.headers.get("If-None-Match") == exchange.etag:
        exchange.head(304)
        return
    exchange.send(exchange.body[exchange.begin() :])


def range_unaware(exchange: Exchange) -> None:
    """Serves the whole, whatever was asked for."""
    exchange.head(200, Content_Length=str(len(exchange.body)), ETag=exchange.etag)
    exchange.send(exchange.body)


def cut_at(offsets: list[int]) -> Fault:
    """Closes the connection at each of the offsets, in their order, once."""
    ahead = sorted(offsets)

    def serve(exchange: Exchange) -> None:
        start = exchange.begin()
        while ahead and ahead[0] <= start:
            ahead.pop(0)
        exchange.send(exchange.body[start : ahead.pop(0) if ahead else None])

    return serve


def cut_once_then(offset: int, after: Fault) -> Fault:
    """Closes the connection once at an offset and behaves in another way from then on."""
    faults = [cut_at([offset])]

    def serve(exchange: Exchange) -> None:
        (faults.pop() if faults else after)(exchange)

    return serve


def stall_at(offset: int) -> Fault:
    """Sends up to an offset, and then nothing while the server runs."""

    def serve(exchange: Exchange) -> None:
        start = exchange.begin()
        exchange.send(exchange.body[start:offset])
        exchange.closing.wait()

    return serve


def length_lie(extra_bytes: int) -> Fault:
    """Promises more or fewer bytes than it has."""

    def serve(exchange: Exchange) -> None:
        promised = len(exchange.body) + extra_bytes
        exchange.head(200, Content_Length=str(promised), ETag=exchange.etag)
        exchange.send(exchange.body[:promised])

    return serve


def endless(exchange: Exchange) -> None:
    """Never says a length and never ends."""
    exchange.head(200)
    while not exchange.closing.is_set():
        exchange.send(exchange.body or b"\0")


def status(code: int, **headers: str) -> Fault:
    """Answers with a status and no body."""

    def serve(exchange: Exchange) -> None:
        exchange.head(code, Content_Length="0", **headers)

    return serve


def in_turn(*faults: Fault) -> Fault:
    """Behaves in another way at each request, and stays with the last."""
    waiting = list(faults)

    def serve(exchange: Exchange) -> None:
        (waiting.pop(0) if len(waiting) > 1 else waiting[0])(exchange)

    return serve


def linked(location: str, sha256: str, size: int) -> Fault:
    """Redirects as a model hub does: with the digest and the size of what lies elsewhere."""
    facts = {"X_Linked_Etag": f'"{sha256}"', "X_Linked_Size": str(size)}
    return status(302, Location=location, **facts)


def held_until(event: threading.Event, fault: Fault) -> Fault:
    """Answers once the event has happened."""

    def serve(exchange: Exchange) -> None:
        event.wait()
        fault(exchange)

    return serve


def encoded(exchange: Exchange) -> None:
    """Claims a Content-Encoding that nobody asked for."""
    exchange.head(200, Content_Length=str(len(exchange.body)), Content_Encoding="gzip")
    exchange.send(exchange.body)


def noise(exchange: Exchange) -> None:
    """Sends other bytes each time, and says each time that they are the same."""
    if exchange.handler.headers.get("If-None-Match"):
        exchange.head(304)
        return
    exchange.head(200, Content_Length=str(len(exchange.body)), ETag=exchange.etag)
    exchange.send(os.urandom(len(exchange.body)))


def wrong_range(exchange: Exchange) -> None:
    """Answers a range with another one."""
    if not exchange.start:
        honest(exchange)
        return
    exchange.head(
        206,
        Content_Length=str(len(exchange.body)),
        Content_Range=f"bytes 0-{len(exchange.body) - 1}/{len(exchange.body)}",
    )
    exchange.send(exchange.body)


@dataclass
class _Published:
    body: bytes
    fault: Fault
    etag: str


@dataclass
class ReleaseServer:
    """Serves on an ephemeral port of 127.0.0.1 while its `with` block lasts.

    Attributes:
        certificate: a PEM file with certificate and key, or None for plain http.
        requested: the request lines' targets, in their order.
        headers: the headers of each request.
        sent_bytes: body bytes sent, by path.
    """

    certificate: Path | None = None
    requested: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sent_bytes: dict[str, int] = field(default_factory=dict)
    _published: dict[str, _Published] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._serve(self)

            def do_HEAD(self) -> None:
                owner._serve(self)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # As above.
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_port}{path}"

    def publish(self, path: str, body: bytes, fault: Fault = honest, *, etag: str = '"1"') -> str:
        """Puts an artifact under a path, and returns its URL."""
        self._published[path] = _Published(body, fault, etag)
        return self.url(path)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        self.requested.append(handler.path)
        self.headers.append({name.lower(): value for name, value in handler.headers.items()})
        path = handler.path.partition("?")[0]
        published = self._published.get(path)
        if published is None:
            handler.send_error(404)
            return
        self.sent_bytes.setdefault(path, 0)

        def count(sent: int) -> None:
            self.sent_bytes[path] += sent

        exchange = Exchange(handler, published.body, published.etag, self._closing, count)
        # A client that has seen enough hangs up.
        with suppress(ConnectionError, ssl.SSLError):
            published.fault(exchange)


def self_signed(folder: Path, *, starts_in_days: int = -1) -> Path:
    """A certificate for 127.0.0.1 that nobody has heard of, with its key, as one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.now(UTC) + timedelta(days=starts_in_days)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + timedelta(days=30))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path

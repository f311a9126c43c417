"""An HTTPS server that keeps CertificateSigningRequests and knows its clients by their certificates.

It does what a kube-apiserver does with these objects, no more; all else it passes on to a plane, as the node
whose certificate was shown.  The tests that need the real server have one, see `scripts/real-apiserver`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.support.joined import ask_to_join, join_token, new_credential
from tests.support.plane import RunningPlane
from tests.support.tls import Authority

JsonObject = dict[str, Any]
GROUP = "certificates.k8s.io"
GROUP_PATH = f"/apis/{GROUP}/v1/certificatesigningrequests"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
BOOTSTRAP = "bootstrap-of-the-tests"
USER_PREFIX = "journeyman:node:"


@dataclass
class Requests:
    """What the server keeps, and what happens to it.

    Attributes:
        objects: by name.
        looked: is called with the object before each look at it: a test approves there, or refuses.
        seen: method, path and user of each request so far.
        tokens: that may ask for certificates.
        lost: how many answers to a POST are lost on their way.
        broken: the status of the next answers to looks, while there are any.
    """

    objects: dict[str, JsonObject] = field(default_factory=dict)
    looked: Callable[[JsonObject], None] = lambda _: None
    seen: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=lambda: {BOOTSTRAP})
    lost: int = 0
    broken: list[int] = field(default_factory=list)

    def only(self) -> JsonObject:
        """The one object that is there."""
        (found,) = self.objects.values()
        return found


def approve(found: JsonObject, kind: str = "Approved", **said: str) -> None:
    """What `kubectl certificate approve` or `deny` leaves, or a signer that fails."""
    condition = {"type": kind, "status": "True", "reason": "ByTest", **said}
    found["status"].setdefault("conditions", []).append(condition)


def issue(found: JsonObject, certificate: str) -> None:
    """What a signer leaves."""
    found["status"]["certificate"] = base64.b64encode(certificate.encode()).decode()


def request_in(found: JsonObject) -> str:
    """PEM text of the request."""
    return base64.b64decode(found["spec"]["request"]).decode()


class SigningServer(ThreadingHTTPServer):
    """See above.

    Args:
        authority: of the server's certificate, and of those of its clients.
        folder: for its files.
        plane: to which all else is passed; without one there is no FleetNode.
    """

    daemon_threads = True

    def __init__(self, authority: Authority, folder: Path, plane: RunningPlane | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.authority = authority
        self.plane = plane
        self.requests = Requests()
        self.lock = threading.Lock()
        self._credentials: dict[str, str] = {}
        self.ca_file = folder / "signing-ca.crt"
        self.ca_file.write_text(authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*authority.issue("server", host="127.0.0.1").save(folder, "signing"))
        context.load_verify_locations(cadata=authority.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        # Each handshake is a matter of its own thread.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def credential_of(self, node: str) -> str:
        """What the plane knows that node by."""
        assert self.plane is not None
        with self.lock:
            if node not in self._credentials:
                credential = new_credential(node)
                reply = ask_to_join(self.plane, join_token(self.plane), node, credential=credential)
                assert reply.is_success, reply.text
                self._credentials[node] = credential
            return self._credentials[node]

    def has_rights(self, user: str) -> bool:
        """Whether that is a node, to which somebody has given some."""
        node = user.removeprefix(USER_PREFIX)
        return user != node and (self.plane is None or node in self._credentials)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or whose certificate is refused, is no failure of the server."""


class _Handler(BaseHTTPRequestHandler):
    server: SigningServer

    def do_GET(self) -> None:
        self._serve("GET", b"")

    def do_DELETE(self) -> None:
        self._serve("DELETE", b"")

    def do_POST(self) -> None:
        self._serve("POST", self.rfile.read(int(self.headers["Content-Length"])))

    def do_PATCH(self) -> None:
        self._serve("PATCH", self.rfile.read(int(self.headers["Content-Length"])))

    def _serve(self, method: str, body: bytes) -> None:
        user = self._user()
        path = self.path.partition("?")[0]
        self.server.requests.seen.append((method, path, user))
        if not user:
            self._refuse(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        elif path.startswith(GROUP_PATH):
            with self.server.lock:
                self._certificates(method, path.removeprefix(GROUP_PATH).strip("/"), body, user)
        elif path == REVIEWS and GROUP.encode() in body:
            self._answer(HTTPStatus.CREATED, {"status": {"allowed": True}})
        elif not self.server.has_rights(user):
            self._refuse(HTTPStatus.FORBIDDEN, "Forbidden")
        elif self.server.plane is None:
            self._refuse(HTTPStatus.NOT_FOUND, "NotFound")
        else:
            self._relay(method, body, self.server.credential_of(user.removeprefix(USER_PREFIX)))

    def _user(self) -> str:
        assert isinstance(self.connection, ssl.SSLSocket)
        found = self.connection.getpeercert() or {}
        names = dict(item[0] for item in found.get("subject", ()))  # type: ignore[misc]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        return str(
            names.get("commonName") or ("bootstrapper" if token in self.server.requests.tokens else "")
        )

    def _certificates(self, method: str, name: str, body: bytes, user: str) -> None:
        kept = self.server.requests
        if method == "POST":
            found = json.loads(body)
            name = found["metadata"]["name"]
            if name in kept.objects:
                self._refuse(HTTPStatus.CONFLICT, "AlreadyExists")
                return
            kept.objects[name] = found | {"status": {}}
            found["spec"]["username"] = user
            if kept.lost:
                kept.lost -= 1
                self.close_connection = True
                return
            self._answer(HTTPStatus.CREATED, kept.objects[name])
        elif name not in kept.objects:
            self._refuse(HTTPStatus.NOT_FOUND, "NotFound")
        elif kept.broken:
            self._refuse(HTTPStatus(kept.broken.pop(0)), "Broken")
        else:
            kept.looked(kept.objects[name])
            self._answer(HTTPStatus.OK, kept.objects[name])

    def _relay(self, method: str, body: bytes, credential: str) -> None:
        assert self.server.plane is not None
        headers = {"Authorization": f"Bearer {credential}"}
        if body:
            headers["Content-Type"] = self.headers["Content-Type"]
        with (
            httpx.Client(timeout=None) as client,  # A watch is silent for as long as it likes.
            client.stream(method, self.server.plane.url + self.path, headers=headers, content=body) as reply,
            contextlib.suppress(OSError),
        ):
            self.send_response(reply.status_code)
            self.send_header("Content-Type", reply.headers.get("content-type", "application/json"))
            self.end_headers()
            for chunk in reply.iter_raw():
                self.wfile.write(chunk)
                self.wfile.flush()

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        words = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason}
        self._answer(status, words | {"message": f"refused: {reason}", "code": int(status)})

    def _answer(self, status: HTTPStatus, body: JsonObject) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def signing_server(
    authority: Authority, folder: Path, plane: RunningPlane | None = None
) -> Iterator[SigningServer]:
    """One that answers while the block lasts."""
    with SigningServer(authority, folder, plane) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="signing server")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

"""One GET over the network, hop by hop; every way in which it can fail has its reason.

Redirects are followed here and not by the library, so that each hop is judged before it is asked.  Resuming,
retries and hashes are in `fetch_http`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from journeyman_updater.adapters.agent_files import AgentFiles
from journeyman_updater.contract.http_rules import RetryPolicy, origin, retry_after_seconds
from journeyman_updater.core.http_rules import check_hop
from journeyman_updater.errors import HostError, Reason, RequestError, SourceError, UntrustedError
from journeyman_updater.ports import Clock

_ANSWERS = {
    "Range": (HTTPStatus.PARTIAL_CONTENT, HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE),
    "If-None-Match": (HTTPStatus.NOT_MODIFIED,),
    "If-Modified-Since": (HTTPStatus.NOT_MODIFIED,),
}
_REDIRECTS = {301, 302, 303, 307, 308}
_WORTH_ANOTHER_TRY = {408, 425, 429, 500, 502, 503, 504}
# X509_V_ERR_CERT_NOT_YET_VALID of OpenSSL: more often the clock of a host without a battery than the server.
_CERTIFICATE_NOT_YET_VALID = 9
_UNREADABLE = (OSError, ValueError)
_NO_PROXY_FOR_LOOPBACK = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}


@dataclass(frozen=True)
class SourceSettings:
    """How artifacts are fetched.

    Attributes:
        stall_seconds: a transfer in which no byte comes for so long has stalled; there is no total deadline.
        connect_seconds: for the connection and the TLS handshake.
        most_redirects: hops after the first URL.
        most_bytes: of an artifact whose size nobody has signed.
        plain_http_hosts: hosts beside loopback to which http without TLS is allowed.
        node_file: `node.json`, which may be missing.  The CA that it names is trusted beside the usual ones,
            and its token is sent to the control plane's origin alone, which may serve artifacts itself.
        retry: pauses between tries.
    """

    stall_seconds: float = 60.0
    connect_seconds: float = 30.0
    most_redirects: int = 5
    most_bytes: int = 512 * 1024**2
    plain_http_hosts: frozenset[str] = frozenset()
    node_file: Path = Path("/nonexistent/node.json")
    retry: RetryPolicy = field(default_factory=RetryPolicy)


class HttpSource:
    """Opens URLs.

    Args:
        settings: limits and trust.
        clock: to read Retry-After dates against.
    """

    def __init__(self, settings: SourceSettings, clock: Clock) -> None:
        self._settings = settings
        self._files = AgentFiles(settings.node_file)
        self._clock = clock

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Opens a URL, following redirects; also gives a name to what fails while the body is read.

        Each call makes its own client: proxies and addresses are looked up anew, as networks change.

        Args:
            url: the first URL.
            headers: sent at each hop.

        Yields:
            A response with status 200, to a Range also 206 or 416, to a condition also 304; its body is
            still to be read.

        Raises:
            RequestError, SourceError, UntrustedError, HostError: as the reasons say.
        """
        check_hop(url, came_from=None, plain_hosts=self._settings.plain_http_hosts)
        host = urlsplit(url).netloc.rpartition("@")[2]
        try:
            with self._client() as client:
                response = self._follow(client, url, headers)
                try:
                    _refuse_encoding(response)
                    yield response
                finally:
                    response.close()
        except httpx.InvalidURL as error:
            raise RequestError(Reason.BAD_REQUEST, f"{url[:200]!r} is no URL: {error}") from error
        except httpx.TransportError as error:
            raise _explain(error, host) from error

    def _client(self) -> httpx.Client:
        context = httpx.create_ssl_context()
        # A file that was removed makes the server untrusted, and says so there.
        with suppress(*_UNREADABLE):
            self._files.trust(self._files.node(), context)
        return httpx.Client(
            verify=context,
            timeout=httpx.Timeout(self._settings.stall_seconds, connect=self._settings.connect_seconds),
            mounts=_NO_PROXY_FOR_LOOPBACK,
        )

    def _follow(self, client: httpx.Client, url: str, headers: Mapping[str, str]) -> httpx.Response:
        first = url
        wanted = {HTTPStatus.OK} | {code for name in headers for code in _ANSWERS.get(name, ())}
        for _ in range(self._settings.most_redirects + 1):
            request = client.build_request(
                "GET", url, headers={**self._token(url), **headers, "Accept-Encoding": "identity"}
            )
            response = client.send(request, stream=True)
            if response.status_code in wanted:
                return response
            response.close()
            location = response.headers.get("Location", "")
            if response.status_code not in _REDIRECTS or not location:
                raise self._refused(response)
            came_from, url = url, str(response.url.join(location))
            check_hop(url, came_from=came_from, plain_hosts=self._settings.plain_http_hosts)
        raise SourceError(
            Reason.TOO_MANY_REDIRECTS,
            f"{httpx.URL(first).host} redirects more than {self._settings.most_redirects} times",
            at_once=False,
        )

    def _token(self, url: str) -> dict[str, str]:
        # A host that has not joined yet may be mended by a release from elsewhere.
        with suppress(*_UNREADABLE):
            node = self._files.node()
            if origin(url) == origin(node.server) and (token := self._files.token(node)):
                return {"Authorization": f"Bearer {token}"}
        return {}

    def _refused(self, response: httpx.Response) -> SourceError:
        status = response.status_code
        return SourceError(
            Reason.HTTP_STATUS,
            f"{response.url.host} answered {status} {response.reason_phrase}".strip(),
            "Check that the artifact is published under this URL and may be read.",
            retry_after_seconds=retry_after_seconds(
                response.headers.get("Retry-After", ""), self._clock.now()
            ),
            at_once=status in _WORTH_ANOTHER_TRY,
        )


def _refuse_encoding(response: httpx.Response) -> None:
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UntrustedError(
            Reason.COMPRESSED,
            f"{response.url.host} compresses the transfer ({encoding[:40]}) although it was asked not to",
            "Publish the artifact where it is served as it is.",
        )


def _explain(error: httpx.TransportError, host: str) -> SourceError | HostError:
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        return SourceError(Reason.STALLED, f"no byte came from {host} for the stall timeout")
    if isinstance(error, httpx.RemoteProtocolError):
        return SourceError(Reason.LENGTH_MISMATCH, f"{host} broke the transfer off: {error}")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _explain_certificate(cause, host)
        cause = cause.__cause__ or cause.__context__
    return SourceError(Reason.UNREACHABLE, f"the connection to {host} failed: {error}")


def _explain_certificate(error: ssl.SSLCertVerificationError, host: str) -> SourceError | HostError:
    if error.verify_code == _CERTIFICATE_NOT_YET_VALID:
        return HostError(
            Reason.CLOCK_WRONG,
            f"the certificate of {host} is not valid yet by the clock of this host",
            "Set the clock; the update goes on by itself.",
        )
    return SourceError(
        Reason.TLS_UNTRUSTED,
        f"the certificate of {host} is not trusted: {error.verify_message}",
        "Serve the artifact with a certificate that this host trusts, and check its clock.",
        at_once=False,
    )

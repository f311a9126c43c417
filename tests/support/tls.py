"""A CA of the tests' own, and an HTTPS server that says who came."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

PEM = serialization.Encoding.PEM
LIFE = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM texts."""

    certificate: str
    key: str

    def save(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes both; returns the paths."""
        paths = folder / f"{name}.crt", folder / f"{name}.key"
        paths[0].write_text(self.certificate)
        paths[1].write_text(self.key)
        return paths


class Authority:
    """A CA that signs whatever a test wants."""

    def __init__(self, name: str = "tests' CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(PEM).decode()

    @classmethod
    def of(cls, certificate: Path, key: Path) -> Authority:
        """One whose files are there already."""
        made = cls()
        made.pem = certificate.read_text()
        made._name = x509.load_pem_x509_certificate(made.pem.encode()).subject
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        made._key = loaded
        return made

    def issue(self, name: str, *, host: str = "") -> Pair:
        """A certificate for a client of that name, or for a server of that host."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        if host:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(host)]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        secret = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Pair(certificate.public_bytes(PEM).decode(), secret.decode())

    def sign(
        self,
        request: str,
        *,
        life: timedelta = LIFE,
        since: datetime | None = None,
        as_user: str = "",
        public_key_of: str = "",
    ) -> str:
        """The certificate that a request asks for, as a signer of Kubernetes makes it.

        Args:
            request: PEM text.
            life: of the certificate.
            since: when it becomes good; now where it is left out.
            as_user: another common name than that of the request.
            public_key_of: PEM text of a certificate whose key is put in the place of the request's.
        """
        asked = x509.load_pem_x509_csr(request.encode())
        assert asked.is_signature_valid
        subject = asked.subject
        if as_user:
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, as_user)])
        key = asked.public_key()
        if public_key_of:
            key = x509.load_pem_x509_certificate(public_key_of.encode()).public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        begin = since or datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + life)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(PEM).decode()

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - LIFE)
            .not_valid_after(now + LIFE)
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass
class TlsServer:
    """Where it listens, and who has come."""

    port: int = 0
    seen: list[dict[str, str]] = field(default_factory=list)
    connects: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def tls_server(
    authority: Authority, folder: Path, *, host: str = "127.0.0.1", wants_certificate: bool = False
) -> AsyncIterator[TlsServer]:
    """An API server that answers each request with an object, and notes token and client certificate.

    Args:
        authority: of its certificate, and of those of its clients.
        folder: for its files.
        host: the name in its certificate.
        wants_certificate: whether clients must show one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", host=host).save(folder, "server"))
    if wants_certificate:
        context.load_verify_locations(cadata=authority.pem)
        context.verify_mode = ssl.CERT_REQUIRED
    server = TlsServer()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            found = writer.get_extra_info("peercert") or {}
            subject = dict(item[0] for item in found.get("subject", ()))
            lines = [line for line in head.split("\r\n") if line.startswith("authorization:")]
            token = lines[0].rpartition(" ")[2] if lines else ""
            server.seen.append({"token": token, "certificate": subject.get("commonName", "")})
            body = json.dumps({"metadata": {"name": "mac-1"}}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()

    async with _serving(answer, context) as server.port:
        yield server


@contextlib.asynccontextmanager
async def connect_proxy() -> AsyncIterator[TlsServer]:
    """A proxy that serves CONNECT alone, and notes where to."""
    proxy = TlsServer()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target = (await reader.readuntil(b"\r\n\r\n")).decode().split()[1]
        proxy.connects.append(target)
        host, _, port = target.rpartition(":")
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ways = [
            asyncio.create_task(pump(reader, there_writer)),
            asyncio.create_task(pump(there_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async with _serving(serve, None) as proxy.port:
        yield proxy


@contextlib.asynccontextmanager
async def _serving(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    """Serves on a free port, which it yields; leaves neither a task nor a socket."""
    tasks: set[asyncio.Task[None]] = set()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
                await handle(reader, writer)
        finally:
            writer.transport.abort()

    listener = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=context)
    async with listener:
        try:
            yield listener.sockets[0].getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # An aborted transport closes its socket in the next turn.

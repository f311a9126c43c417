"""A real kube-apiserver and its etcd, started and stopped on loopback.

    python -m tests.support.real_apiserver PROGRAMS FOLDER

`scripts/real-apiserver` builds the programs, and runs this.  Controllers and nodes there are none: what is
stored stays as it was written.
"""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.error import URLError

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from journeyman_plane.adapters.certificates import ensure_certificates
from tests.support.waiting import eventually

START_SECONDS = 120.0
STOP_SECONDS = 30.0
# Of a server that lives for a test run, on loopback: these are known to everyone, and good for nothing else.
ADMIN_TOKEN, VISITOR_TOKEN = "admin-of-the-tests", "visitor-of-the-tests"
TOKENS = f'{ADMIN_TOKEN},admin,admin,"system:masters"\n{VISITOR_TOKEN},visitor,visitor\n'
# So soon are old revisions gone, and with them the lists that may still be asked for.
COMPACTION = "2s"


@contextmanager
def running_apiserver(programs: Path, folder: Path) -> Iterator[Path]:
    """Starts both, and stops both at the end.

    Args:
        programs: the folder with `kube-apiserver` and `etcd`.
        folder: for their data and logs; made where there is none, and must be empty.

    Yields:
        The kubeconfig of an administrator.
    """
    folder.mkdir(parents=True, exist_ok=True)
    etcd_url, peer_url = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    (port,) = free_ports(1)
    with ExitStack() as stack:
        stack.enter_context(_program("etcd", _etcd(programs, folder, etcd_url, peer_url), folder))
        server = stack.enter_context(
            _program("kube-apiserver", _apiserver(programs, folder, etcd_url, port), folder)
        )
        url = f"https://127.0.0.1:{port}"
        eventually(lambda: _is_ready(url, folder, server), within_seconds=START_SECONDS)
        yield _kubeconfig(folder, url)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on at this moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _etcd(programs: Path, folder: Path, client_url: str, peer_url: str) -> list[str]:
    return [
        str(programs / "etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client_url}",
        f"--advertise-client-urls={client_url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
    ]


def _apiserver(programs: Path, folder: Path, etcd_url: str, port: int) -> list[str]:
    authority, certificate, key = ensure_certificates(folder, (), datetime.now(UTC))
    tokens, account_key = folder / "tokens.csv", folder / "accounts.key"
    tokens.write_text(TOKENS)
    account_key.write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return [
        str(programs / "kube-apiserver"),
        f"--etcd-servers={etcd_url}",
        f"--etcd-compaction-interval={COMPACTION}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={authority}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={account_key}",
        f"--service-account-signing-key-file={account_key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # There is no controller that would make the accounts and tokens that it waits for.
        "--disable-admission-plugins=ServiceAccount",
    ]


@contextmanager
def _program(name: str, command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A child that ends with this process, whatever ends it."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command], stdout=log, stderr=log, cwd=folder
        )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _is_ready(url: str, folder: Path, server: subprocess.Popen[bytes]) -> bool:
    assert server.poll() is None, (folder / "kube-apiserver.log").read_text()[-2000:]
    trust = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=trust) as reply:
            return bool(reply.status == 200)
    except (URLError, OSError):
        return False


def _kubeconfig(folder: Path, url: str) -> Path:
    """Written as JSON, which is YAML."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [
            {"name": "tests", "cluster": {"server": url, "certificate-authority": str(folder / "ca.crt")}}
        ],
        "users": [{"name": "admin", "user": {"token": ADMIN_TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
    }
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=2))
    return path


def _main() -> None:
    programs, folder = map(Path, sys.argv[1:])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with running_apiserver(programs, folder.absolute()) as kubeconfig:
            sys.stdout.write(f"export KUBECONFIG={kubeconfig}\n")
            sys.stdout.flush()
            signal.pause()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")


if __name__ == "__main__":
    _main()

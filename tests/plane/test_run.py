"""A plane as a whole: what it owns, how it starts and stops, and what survives."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from journeyman.errors import AlreadyRunningError, ConfigError, HostError
from journeyman_plane.run import Plane, PlaneSettings
from tests.support.killed_writer import kill_a_writer_of
from tests.support.plane import FOREMAN, MERGE_PATCH, fleet_node, http_client, running_plane, spawn_plane

COMMAND = [sys.executable, "-m", "journeyman", "plane"]


@pytest.mark.slow
def test_a_port_in_use_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    """A port in use is a HostError (71) that names it, and the folder can be used at once after it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=f"port {port} on 127.0.0.1 is in use") as caught:
            Plane(PlaneSettings(tmp_path / "plane", port=port))
    assert caught.value.exit_code == 71
    assert not (tmp_path / "plane" / "plane.db").exists()
    assert not (tmp_path / "plane" / "address").exists()
    with running_plane(tmp_path) as plane, plane.client() as client:
        assert client.get("/readyz").text == "ok"


@pytest.mark.slow
def test_a_second_plane_on_one_folder_is_refused(tmp_path: Path) -> None:
    """Two planes never share a folder: the second is an AlreadyRunningError (73), and the first goes on."""
    with running_plane(tmp_path) as plane, plane.client() as client:
        with pytest.raises(AlreadyRunningError, match="already runs on") as caught:
            Plane(PlaneSettings(plane.data_dir, port=0))
        assert caught.value.exit_code == 73
        assert client.get("/readyz").text == "ok"


@pytest.mark.slow
def test_a_start_removes_what_a_killed_plane_has_left(tmp_path: Path) -> None:
    """A token and a key that were cut off at their writing go, and never count as such."""
    folder = tmp_path / "plane"
    left = [kill_a_writer_of(folder / name) for name in ("admin.token", "release.key")]
    with running_plane(tmp_path) as plane:
        assert plane.data_dir == folder
        assert not any(path.exists() for path in left)


def test_other_machines_need_tls(tmp_path: Path) -> None:
    """An address that is not loopback is refused without TLS, before anything is touched."""
    with pytest.raises(ConfigError, match="no TLS"):
        Plane(PlaneSettings(tmp_path / "plane", host="0.0.0.0", port=0))
    assert not (tmp_path / "plane").exists()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """A broken database is one clear line, and is not overwritten."""
    broken = tmp_path / "plane.db"
    broken.write_bytes(b"this is no database " * 100)
    with pytest.raises(HostError, match=r"plane\.db cannot be used as a database"):
        Plane(PlaneSettings(tmp_path, port=0))
    assert broken.read_bytes().startswith(b"this is no database")


@pytest.mark.slow
def test_secrets_are_private_and_kept(tmp_path: Path) -> None:
    """Token, kubeconfig and database are 0600 in a 0700 folder, and a restart keeps the token."""
    with running_plane(tmp_path) as plane:
        token = plane.token
        assert (plane.data_dir / "address").read_text().strip() == plane.url
        for file in (plane.token_file, plane.kubeconfig, *plane.data_dir.glob("plane.db*")):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(plane.data_dir.stat().st_mode) == 0o700
    assert not (plane.data_dir / "address").exists()
    with running_plane(tmp_path) as plane:
        assert plane.token == token


@pytest.mark.slow
def test_tls_with_the_generated_ca(tmp_path: Path) -> None:
    """With TLS, clients that trust the CA get in by each name of the certificate, and nobody by another."""
    with running_plane(tmp_path, tls=True, tls_names=("desk.local", "192.0.2.7")) as plane:
        trusting = ssl.create_default_context(cafile=str(plane.data_dir / "ca.crt"))
        port = plane.url.rpartition(":")[2]
        with http_client(plane.url, plane.token, verify=trusting) as client:
            assert client.get("/apis").status_code == 200
        for name in ("localhost", "desk.local", "192.0.2.7"):
            assert handshake(int(port), trusting, name)
        with pytest.raises(ssl.SSLCertVerificationError, match=r"(?i)hostname mismatch"):
            handshake(int(port), trusting, "elsewhere.example")
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(plane.url)


def handshake(port: int, context: ssl.SSLContext, name: str) -> bool:
    """Whether a TLS handshake succeeds when the server is called by `name`."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname=name),
    ):
        return True


@pytest.mark.slow
def test_the_ca_outlives_a_restart(tmp_path: Path) -> None:
    """A client that was given the CA once is served after a restart, and kubectl's file says https."""
    with running_plane(tmp_path, tls=True) as plane:
        trusting = ssl.create_default_context(cafile=str(plane.data_dir / "ca.crt"))
    with (
        running_plane(tmp_path, tls=True) as plane,
        http_client(plane.url, plane.token, verify=trusting) as client,
    ):
        assert client.get("/apis").status_code == 200
        assert "server: https://127.0.0.1" in plane.kubeconfig.read_text()
        assert plane.token in plane.kubeconfig.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_watches_and_exits_0(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end a stream that is open, properly, and the process with 0 within two seconds."""
    with spawn_plane(tmp_path) as plane, plane.client() as client:
        assert plane.process is not None
        with client.stream("GET", "/api/v1/namespaces?watch=true", timeout=20) as watching:
            lines = watching.iter_lines()
            assert json.loads(next(lines))["type"] == "ADDED"
            plane.process.send_signal(number)
            assert plane.process.wait(2) == 0
            rest = [json.loads(line)["type"] for line in lines]
        assert rest == ["ADDED"]


@pytest.mark.slow
def test_kill_9_loses_no_acknowledged_write(tmp_path: Path) -> None:
    """What was acknowledged before a kill -9 under concurrent writes is there afterwards."""
    acknowledged: dict[str, int] = {}
    enough = threading.Barrier(5)

    def write(name: str) -> None:
        with plane.client() as client:
            client.post(f"{FOREMAN}/fleetnodes", json=fleet_node(name)).raise_for_status()
            try:
                for count in range(1_000_000):
                    body = {"spec": {"tailscaleAddr": str(count)}}
                    reply = client.patch(f"{FOREMAN}/fleetnodes/{name}", json=body, headers=MERGE_PATCH)
                    reply.raise_for_status()
                    acknowledged[name] = count
                    if count == 20:
                        enough.wait(30)
            except httpx.TransportError:
                return

    with spawn_plane(tmp_path) as plane:
        writers = [threading.Thread(target=write, args=(f"node-{index}",)) for index in range(4)]
        for writer in writers:
            writer.start()
        enough.wait(30)
        plane.kill()
        for writer in writers:
            writer.join(30)
        port = plane.port
        plane.start()
        assert plane.port == port
        with plane.client() as client:
            for name, count in acknowledged.items():
                stored = client.get(f"{FOREMAN}/fleetnodes/{name}").json()
                # The write that was under way may have landed, too.
                assert int(stored["spec"]["tailscaleAddr"]) in {count, count + 1}


@pytest.mark.slow
def test_a_command_that_cannot_start_is_one_line(tmp_path: Path) -> None:
    """A --listen that is no address is one line of advice and exit code 2, with nothing made."""
    done = subprocess.run(
        [*COMMAND, "--data-dir", str(tmp_path / "plane"), "--listen", "6480"],
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert "this is no HOST:PORT" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "plane").exists()

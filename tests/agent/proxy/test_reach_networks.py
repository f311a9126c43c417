"""The door to other machines, on networks of its own: real sources, a late address, a taken port."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from journeyman.core.proxy.config import ProxyConfig
from journeyman.core.proxy.reach import Reach
from journeyman.core.proxy.routes import Route, RouteState, routes_to_json
from tests.support.netns import Namespace, cable, namespaces
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow
PORT = 6482
QUESTION = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Api-Key: outer\r\nConnection: close\r\n\r\n"


@contextmanager
def worker(folder: Path, home: Namespace, reach: Reach) -> Iterator[subprocess.Popen[bytes]]:
    """The proxy as the agent starts it, inside of a network."""
    folder.mkdir()
    files = {
        "config.json": ProxyConfig(reach=reach).to_json(),
        "routes.json": routes_to_json([Route("tiny", RouteState.STARTING, services=("default/tiny",))]),
        "api-key": b"inner",
        "reach-key": b"outer",
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with home.inside():
        process = subprocess.Popen([sys.executable, "-m", "journeyman.workers.proxy"], cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(30) == 0


def why_not(folder: Path) -> str | None:
    """What it says about other machines; None before it has said anything."""
    told = folder / "reach.json"
    return str(json.loads(told.read_bytes())["why_not"]) if told.exists() else None


def answer(space: Namespace, address: str, say: bytes = QUESTION, source: str = "") -> bytes:
    """All that comes back on a connection from that machine, from that one of its addresses if given."""
    with space.inside():
        own = (source, 0) if source else None
        client = socket.create_connection((address, PORT), timeout=20, source_address=own)
    with client:
        try:
            client.sendall(say)
            return b"".join(iter(lambda: client.recv(65536), b""))
        except ConnectionError:
            return b""


def test_only_machines_of_the_sources_come_in(tmp_path: Path) -> None:
    """One on a cable that is not named is closed at once, at the very address that others use."""
    with namespaces("home", "near", "far") as (home, near, far):
        address, _ = cable(home, near, number=1)
        cable(home, far, number=2)
        far.ip("route", "add", address, "via", "10.213.2.1")
        folder = tmp_path / "proxy"
        with worker(folder, home, Reach(address, PORT, ("10.213.1.0/24",))):
            eventually(lambda: why_not(folder) == "", within_seconds=30)
            assert b" 200 " in answer(near, address)
            assert answer(far, address, b"") == b""
            assert answer(far, address) == b""
            assert b'"tiny"' in answer(near, address)
            with pytest.raises(OSError, match="refused"):
                # The other address of this host has no port of ours.
                answer(far, "10.213.2.1")


def test_a_flood_from_one_machine_costs_a_bounded_share(tmp_path: Path) -> None:
    """Of 500 connections it has as many as one source may; this host and later clients are served."""
    with namespaces("home", "near") as (home, near), ExitStack() as flood:
        address, _ = cable(home, near, number=1)
        near.ip("address", "add", "10.213.1.3/24", "dev", "cable1")
        folder = tmp_path / "proxy"
        with worker(folder, home, Reach(address, PORT, ("10.213.1.0/24",))) as process:
            eventually(lambda: why_not(folder) == "", within_seconds=30)
            before = psutil.Process(process.pid).memory_info().rss
            with near.inside():
                held = [flood.enter_context(_begun(address)) for _ in range(500)]
            eventually(lambda: sum(map(_is_closed, held)) == 500 - 64, within_seconds=30)
            inner = json.loads((folder / "endpoint.json").read_bytes())["base_url"]
            with home.inside():
                asked = urllib.request.Request(f"{inner}/models", headers={"X-Api-Key": "inner"})
                with urllib.request.urlopen(asked, timeout=20) as reply:
                    assert reply.status == 200
            assert b" 200 " in answer(near, address, source="10.213.1.3")
            assert answer(near, address) == b""
            assert psutil.Process(process.pid).memory_info().rss < before + 32 * 1024 * 1024
            # Heads that are never completed are not waited for.
            eventually(lambda: all(map(_is_closed, held)), within_seconds=30)
            assert b" 200 " in answer(near, address)


def _begun(address: str) -> socket.socket:
    """A connection with a head that goes no further."""
    client = socket.create_connection((address, PORT), timeout=20)
    client.setblocking(False)  # As the library has it.
    with contextlib.suppress(ConnectionError):
        client.send(b"GET /v1/models HTTP/1.1\r\nX: " + 60_000 * b"y")
    return client


def _is_closed(client: socket.socket) -> bool:
    """Whether the other side has ended it."""
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("address", ["10.213.9.9", "fd00:9::9"])
def test_an_address_that_comes_late_is_waited_for(tmp_path: Path, address: str) -> None:
    """Loopback is served meanwhile, the reason is told, and the door opens when the address is there."""
    with namespaces("home", "near") as (home, near):
        cable(home, near, number=1)
        whole = f"{address}/{128 if ':' in address else 32}"
        folder = tmp_path / "proxy"
        with worker(folder, home, Reach(address, PORT, ("fd00::/16" if ":" in address else "10.0.0.0/8",))):
            eventually(lambda: why_not(folder), within_seconds=30)
            assert why_not(folder) == f"{address} is no address of this host, or not yet"
            assert (folder / "endpoint.json").exists()
            home.ip("address", "add", whole, "dev", "cable1", *(["nodad"] if ":" in address else []))
            eventually(lambda: why_not(folder) == "", within_seconds=30)
            if ":" in address:
                home.ip("address", "add", "fd00:1::1/64", "dev", "cable1", "nodad")
                near.ip("address", "add", "fd00:1::2/64", "dev", "cable1", "nodad")
                near.ip("route", "add", whole, "via", "fd00:1::1")
            else:
                near.ip("route", "add", whole, "via", "10.213.1.1")
            assert b" 200 " in answer(near, address)


def test_a_port_that_is_taken_is_told_with_its_owner_and_taken_over(tmp_path: Path) -> None:
    """The rest of the proxy does not suffer from it, and once the other one leaves the port is ours."""
    with namespaces("home", "near") as (home, near):
        address, _ = cable(home, near, number=1)
        with home.inside():
            taken = socket.create_server((address, PORT))
        folder, reach = tmp_path / "proxy", Reach(address, PORT, ("10.213.1.0/24",))
        with taken, worker(folder, home, reach):
            eventually(lambda: why_not(folder), within_seconds=30)
            assert (why_not(folder) or "").startswith(f"port {PORT} is taken by ")
            assert (folder / "endpoint.json").exists()
            taken.close()
            eventually(lambda: why_not(folder) == "", within_seconds=30)
            assert b" 200 " in answer(near, address)


def test_another_proxy_takes_over_the_address(tmp_path: Path) -> None:
    """The next one has the port soon after the last one's SIGTERM, and the end of the last door closes it."""
    with namespaces("home", "near") as (home, near):
        address, _ = cable(home, near, number=1)
        reach = Reach(address, PORT, ("10.213.1.0/24",))
        first, second = tmp_path / "first", tmp_path / "second"
        with worker(first, home, reach) as old:
            eventually(lambda: why_not(first) == "", within_seconds=30)
            with worker(second, home, reach):
                old.terminate()
                eventually(lambda: why_not(second) == "", within_seconds=30)
                assert b" 200 " in answer(near, address)
        with pytest.raises(OSError, match="refused"):
            answer(near, address)

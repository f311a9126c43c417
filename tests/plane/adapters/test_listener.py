"""What a plane owns."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from journeyman.errors import AlreadyRunningError, HostError
from journeyman_plane.adapters.listener import folder_lock, is_loopback, listen, url_of


def test_a_port_in_use_names_its_owner() -> None:
    """The error names the port and the process that has it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=f"port {port} on 127.0.0.1 is in use by pid {os.getpid()}"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no such host"])
def test_an_address_of_another_machine(host: str) -> None:
    """An address that is not ours, or no address, is a HostError."""
    with pytest.raises(HostError, match="cannot listen on"):
        listen(host, 0)


def test_the_lock_names_its_holder_and_ends_with_it(tmp_path: Path) -> None:
    """The second holder is told the pid of the first; once that is done the folder is free."""
    path = tmp_path / "plane.lock"
    with folder_lock(path), pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"), folder_lock(path):
        pass
    with folder_lock(path):
        pass


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("desk", False),
    ],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:  # noqa: FBT001
    """Only addresses that no other machine can reach count as loopback."""
    assert is_loopback(host) is loopback


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "https://127.0.0.1:1"), ("::1", "https://[::1]:1"),
        ("0.0.0.0", "https://127.0.0.1:1"), ("::", "https://[::1]:1"),
    ],
)  # fmt: skip
def test_the_url_can_be_used_here(host: str, url: str) -> None:
    """An address that stands for all of them is no address to connect to, so the URL has that of loopback."""
    assert url_of(host, 1, tls=True) == url

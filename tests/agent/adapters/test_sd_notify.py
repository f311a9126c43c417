"""The protocol of sd_notify(3), against a real socket."""

from __future__ import annotations

import secrets
import socket
import sys
from pathlib import Path

import pytest

from journeyman.adapters.sd_notify import SdNotify


def messages(receiver: socket.socket, count: int) -> list[str]:
    receiver.settimeout(5)
    return [receiver.recv(4096).decode() for _ in range(count)]


def test_each_state_is_one_datagram(tmp_path: Path) -> None:
    """READY, STATUS, WATCHDOG and STOPPING are spelled as systemd reads them."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(path)
        notify = SdNotify({"NOTIFY_SOCKET": path})
        notify.ready("node a\nis up")
        notify.alive()
        notify.stopping("asked to")
        assert messages(receiver, 3) == [
            "READY=1\nSTATUS=node a is up",
            "WATCHDOG=1",
            "STOPPING=1\nSTATUS=asked to",
        ]


@pytest.mark.skipif(sys.platform != "linux", reason="cannot run here: no abstract sockets")
def test_an_abstract_socket_is_reached() -> None:
    """A leading @ stands for Linux' abstract namespace."""
    name = f"journeyman-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        SdNotify({"NOTIFY_SOCKET": "@" + name}).alive()
        assert messages(receiver, 1) == ["WATCHDOG=1"]


def test_workers_cannot_inherit_the_socket() -> None:
    """The variable is taken out of the environment."""
    environ = {"NOTIFY_SOCKET": "/run/notify", "PATH": "/bin"}
    SdNotify(environ)
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize("environ", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/no/such/socket"}])
def test_without_a_manager_nothing_happens(environ: dict[str, str]) -> None:
    """Nobody listening is not the agent's problem."""
    notify = SdNotify(environ)
    notify.ready("up")
    notify.alive()

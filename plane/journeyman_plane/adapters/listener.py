"""What a plane must own before it starts: its folder and its port."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from journeyman.errors import AlreadyRunningError, HostError
from journeyman_updater.contract.leftovers import PATTERN, sweep


@contextmanager
def folder_lock(path: Path) -> Iterator[None]:
    """Holds the lock of a data folder, and removes what planes that were killed have left at its top.

    The kernel drops it with the process, so a plane that was killed leaves no stale lock.

    Raises:
        AlreadyRunningError: another plane has it.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise AlreadyRunningError(
                f"another plane (pid {owner}) already runs on {path.parent}",
                "Stop that one, or choose another folder with --data-dir.",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        sweep(path.parent.glob(PATTERN))
        yield
    finally:
        os.close(descriptor)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        HostError: the port is in use, or the address is not one of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise HostError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        # A port whose last connections are in TIME_WAIT may be taken again at once, as after a restart.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise HostError(f"cannot listen on {host}:{port}: {error.strerror}") from error
        raise HostError(
            f"port {port} on {host} is in use{_owner_of(port)}",
            "Stop what uses it, or choose another with --listen HOST:PORT (port 0 takes a free one).",
        ) from error
    listener.setblocking(False)
    return listener


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(host: str, port: int, *, tls: bool) -> str:
    """The URL by which this machine reaches a listener; loopback, if that listens everywhere."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if tls else 'http'}://{shown}:{port}"


def _owner_of(port: int) -> str:
    try:
        connections = psutil.net_connections("tcp")
    except (psutil.Error, OSError):
        return ""
    for each in connections:
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid:
            return f" by pid {each.pid}"
    return ""

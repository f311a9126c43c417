"""Network namespaces: machines of their own as far as sockets can tell, and cables that can be pulled."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.debian import ensure_debian_package

CLONE_NEWNET = 0x40000000


@dataclass(frozen=True)
class Namespace:
    """One namespace; it exists as long as the block of `namespaces` lasts."""

    name: str

    def ip(self, *words: str) -> None:
        """Runs `ip` inside."""
        subprocess.run(["ip", "-n", self.name, *words], check=True, capture_output=True, text=True)

    def shape(self, device: str, rate: str) -> None:
        """Lets no more than that rate out through a device, such as `1mbit`."""
        words = ["tc", "-n", self.name, "qdisc", "add", "dev", device, "root", "tbf"]
        subprocess.run([*words, "rate", rate, "burst", "32kbit", "latency", "400ms"], check=True)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """The sockets that this thread makes, and the processes and threads that it starts, are inside."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path("/proc/thread-self/ns/net").open() as home, Path(f"/run/netns/{self.name}").open() as there:
            _enter(libc, there.fileno())
            try:
                yield
            finally:
                _enter(libc, home.fileno())


def _enter(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


@contextmanager
def namespaces(*names: str) -> Iterator[list[Namespace]]:
    """Namespaces with a loopback each; at the end they are gone with all cables.

    Skips the test where they are not permitted.
    """
    if os.geteuid() != 0 or not Path("/proc/thread-self/ns/net").exists():
        pytest.skip("cannot run here: network namespaces take root and Linux")
    ensure_debian_package("iproute2", "ip")
    with ExitStack() as made:
        spaces = []
        for name in names:
            full = f"jm-{os.getpid()}-{name}"
            added = subprocess.run(["ip", "netns", "add", full], capture_output=True, text=True, check=False)
            if added.returncode != 0:
                pytest.skip(f"cannot run here: network namespaces are not permitted ({added.stderr.strip()})")
            made.callback(subprocess.run, ["ip", "netns", "delete", full], check=True)
            spaces.append(Namespace(full))
            spaces[-1].ip("link", "set", "lo", "up")
        yield spaces


def cable(one: Namespace, other: Namespace, *, number: int) -> tuple[str, str]:
    """Joins two namespaces by a link of its own network; returns the addresses of both ends."""
    device, addresses = f"cable{number}", (f"10.213.{number}.1", f"10.213.{number}.2")
    one.ip("link", "add", device, "type", "veth", "peer", "name", device, "netns", other.name)
    for space, address in zip((one, other), addresses, strict=True):
        space.ip("address", "add", f"{address}/24", "dev", device)
        space.ip("link", "set", device, "up")
    return addresses

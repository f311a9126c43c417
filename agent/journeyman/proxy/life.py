"""The life of a proxy: bind, serve, drain, end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from journeyman.core.proxy.config import LISTEN_HOST, Keys, ProxyConfig
from journeyman.core.proxy.reach import Reach
from journeyman.errors import HostError, WorkerError
from journeyman.proxy.log import tell
from journeyman.proxy.server import ProxyServer

# Two for each stream that passes; launchd gives a service 256.
WANTED_FILES = 4096
LOOK_AGAIN_SECONDS = 0.05
# An address that comes late, as that of a VPN does, is looked for this often.
ADDRESS_SECONDS = 2.0


async def serve(
    config: ProxyConfig,
    keys: Keys,
    routes: Path,
    listening: Callable[[str], None],
    reachable: Callable[[str], None] = lambda _: None,
) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what it has; a SIGINT during that ends it at once.

    A second SIGTERM does not: the next agent says again what the last one has said.

    Args:
        config: where and how.
        keys: what clients have to show.
        routes: see `core/proxy/routes.py`; need not exist yet.
        listening: told the base URL once clients can connect.
        reachable: told why other machines cannot connect yet, and an empty string once they can.

    Raises:
        WorkerError: the port is taken.
        HostError: this machine does not let us listen.
    """
    _allow_files()
    loop, stop, now = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: now.set() if stop.is_set() else stop.set())
    server = ProxyServer(config, keys, routes)
    port = await _bind(server, config)
    listening(f"http://{LISTEN_HOST}:{port}/v1")
    opening = asyncio.ensure_future(_be_reachable(server, config, reachable))
    await stop.wait()
    tell("drain_begun")
    opening.cancel()
    drained = asyncio.ensure_future(server.drain())
    impatient = asyncio.ensure_future(now.wait())
    await asyncio.wait({drained, impatient}, return_when=asyncio.FIRST_COMPLETED)
    tell("proxy_stopped", drained=drained.done())
    for waiting in (drained, impatient):
        waiting.cancel()


async def _be_reachable(server: ProxyServer, config: ProxyConfig, told: Callable[[str], None]) -> None:
    """Opens the door to other machines as soon as its address is there and its port is free."""
    if (reach := config.reach) is None:
        return
    loop, said = asyncio.get_running_loop(), ""
    deadline = loop.time() + config.port_patience_seconds
    while True:
        try:
            await server.be_reachable()
        except OSError as error:
            if error.errno == errno.EADDRINUSE and loop.time() < deadline:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
                continue
            if (why := _why_not(error, reach)) != said:
                said = why
                tell("not_reachable", why=why)
                told(why)
            await asyncio.sleep(ADDRESS_SECONDS)
        else:
            tell("reachable", address=reach.address, port=reach.port, sources=reach.sources)
            told("")
            return


def _why_not(error: OSError, reach: Reach) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{reach.address} is no address of this host, or not yet"
    if error.errno == errno.EADDRINUSE:
        return f"port {reach.port} is taken by {owner_of(reach.port)}"
    return f"cannot listen on {reach.address}:{reach.port}: {error.strerror}"


async def _bind(server: ProxyServer, config: ProxyConfig) -> int:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + config.port_patience_seconds
    while True:
        try:
            return await server.listen(config.port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise HostError(f"cannot listen on {LISTEN_HOST}:{config.port}: {error.strerror}") from error
            if loop.time() < deadline:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            elif config.any_port:
                tell("port_taken", port=config.port, by=owner_of(config.port))
                return await server.listen(0)
            else:
                raise WorkerError(
                    f"port {config.port} is taken by {owner_of(config.port)}",
                    "Stop that program, or choose another port with `proxy_port`.",
                ) from error


def owner_of(port: int) -> str:
    """Who listens on a port of this machine, as far as we may know."""
    # Imported here, as it is needed only when something is wrong.
    import psutil

    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr[1] == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    break
                with contextlib.suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return "another program"


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

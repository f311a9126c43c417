"""Composes the plane: the only file that knows all its parts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import uvicorn

from journeyman.errors import ConfigError, HostError
from journeyman_plane.adapters.admin_files import admin_token, write_kubeconfig
from journeyman_plane.adapters.artifact_files import FileArtifacts
from journeyman_plane.adapters.certificates import ensure_certificates
from journeyman_plane.adapters.crd_files import load_registry
from journeyman_plane.adapters.listener import folder_lock, is_loopback, listen, url_of
from journeyman_plane.adapters.logs import log_to_stderr
from journeyman_plane.adapters.release_key import ensure_release_key
from journeyman_plane.adapters.sqlite_store import SqliteStore
from journeyman_plane.adapters.system_clock import SystemClock
from journeyman_plane.core.admission import Admission
from journeyman_plane.http.api import Api
from journeyman_plane.http.app import build_app
from journeyman_plane.loops.reconcile_loop import run_reconcilers
from journeyman_plane.ports import Clock, Key
from journeyman_plane.settings import PlaneSettings

__all__ = ["Plane", "PlaneSettings", "serve"]

NAMESPACES = ("default", "foreman-system")


class Plane:
    """One control plane.  Making it takes folder and port; `serve` runs it until `stop`, and frees both.

    Args:
        settings: all that can be set.
        clock: the time for reconcilers, ages and creation times; the host's where it is left out.
        version: the version of the program, for `/version`.

    Attributes:
        url: where it listens.
        token: the bearer token that it wants.
        store: its objects.

    Raises:
        AlreadyRunningError: another plane runs on the folder.
        ConfigError: it would be reachable from other machines without TLS.
        HostError: the port is in use, or the folder cannot be written.
    """

    def __init__(self, settings: PlaneSettings, clock: Clock | None = None, version: str = "0") -> None:
        if not settings.tls and not is_loopback(settings.host):
            raise ConfigError(
                f"{settings.host} can be reached from other machines, and there is no TLS",
                "Add --tls, or listen on 127.0.0.1.",
            )
        self._settings = settings
        self._clock = clock or SystemClock()
        with ExitStack() as taken:
            try:
                self._take(taken, version)
            except OSError as error:
                raise HostError(f"{settings.data_dir} cannot be used: {error}") from error
            self._taken = taken.pop_all()

    def _take(self, taken: ExitStack, version: str) -> None:
        settings = self._settings
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken.enter_context(folder_lock(settings.lock_file))
        # A plane that was killed has left its address behind.
        settings.address_file.unlink(missing_ok=True)
        self._listener = taken.enter_context(listen(settings.host, settings.port))
        self.token = admin_token(settings.token_file)
        ensure_release_key(settings.release_key, settings.release_public_key)
        registry = load_registry()
        self.store = SqliteStore(
            settings.database, self._clock, registry.split_resources(), history=settings.history
        )
        taken.callback(self.store.close)
        self._ensure_namespaces()
        self._api = Api(
            registry=registry,
            admission=Admission(registry),
            store=self.store,
            artifacts=FileArtifacts(settings.artifacts, settings.largest_artifact_bytes),
            clock=self._clock,
            version=version,
            largest_body_bytes=settings.largest_body_bytes,
            bookmark_seconds=settings.bookmark_seconds,
            longest_watch_seconds=settings.longest_watch_seconds,
            release_public_key=settings.release_public_key.read_text(encoding="ascii"),
            ca_file=settings.ca_file if settings.tls else None,
        )
        self._server = _Server(self._server_config())

    def _ensure_namespaces(self) -> None:
        present = {each["metadata"]["name"] for each in self.store.select("", "namespaces")[0]}
        for name in NAMESPACES:
            if name not in present:
                body = {"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"}}
                self.store.create(Key("", "namespaces", "", name), body)

    def _server_config(self) -> uvicorn.Config:
        settings = self._settings
        self.url = url_of(*self._listener.getsockname()[:2], tls=settings.tls)
        ca_pem, certificate, key = None, None, None
        if settings.tls:
            ca_file, certificate, key = ensure_certificates(
                settings.data_dir, (settings.host, *settings.tls_names), self._clock.now()
            )
            ca_pem = ca_file.read_bytes()
        write_kubeconfig(settings.kubeconfig, url=self.url, token=self.token, ca_pem=ca_pem)
        return uvicorn.Config(
            build_app(self._api, self.token),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # Longer than the interval of heartbeats, so that each agent keeps its connection.
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, int(settings.stop_grace_seconds)),
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )

    async def serve(self, on_started: Callable[[], None]) -> None:
        """Answers requests and reconciles until `stop` is called; then frees folder and port.

        Args:
            on_started: called once requests are answered.
        """
        with self._taken:
            async with asyncio.TaskGroup() as tasks:
                serving = tasks.create_task(self._server.serve(sockets=[self._listener]))
                reconciling = tasks.create_task(
                    run_reconcilers(
                        self.store, self._clock, tick_seconds=self._settings.reconcile_tick_seconds
                    )
                )
                await self._server.accepting.wait()
                self._settings.address_file.write_text(f"{self.url}\n", encoding="ascii")
                on_started()
                await serving
                reconciling.cancel()
            self._settings.address_file.unlink(missing_ok=True)

    def stop(self) -> None:
        """Ends watches and then the server, within the grace of the settings; from any thread."""
        self._api.stopping = True
        self._server.should_exit = True
        self.store.wake_all()


class _Server(uvicorn.Server):
    """Uvicorn without its handling of signals, which ends the process by the signal that it caught."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(plane: Plane, on_started: Callable[[], None], *, stop_with_stdin: bool = False) -> None:
    """Runs a plane until SIGTERM or SIGINT.

    Args:
        plane: the plane.
        on_started: called once it answers requests.
        stop_with_stdin: stop when standard input ends, too: whoever holds its other end has gone then.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, plane.stop)
        if stop_with_stdin:
            loop.add_reader(sys.stdin.fileno(), read_stdin)
        await plane.serve(on_started)

    def read_stdin() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            plane.stop()

    log_to_stderr()
    asyncio.run(main())

"""Serves the control socket: one request line, one reply line.

The agent's own user and root may ask for anything.  The socket of a system install is open to the agent's
group as well, whose members may look and change nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self

import structlog

from journeyman.control import LONGEST_LINE_BYTES, encoded, socket_address
from journeyman.errors import HostError, JourneymanError, UsageError
from journeyman.ports import JsonObject
from journeyman_updater.contract import StateRoot, control_socket_of

log = structlog.get_logger(__name__)

Verb = Callable[[JsonObject], Awaitable[JsonObject]]

# sys/un.h of macOS: LOCAL_PEERCRED gives a struct xucred, whose uid follows a version of four bytes.
SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES = 0, 1, 76

READING = frozenset({"status"})
"""Verbs that change nothing and tell nothing that is not everybody's on this host."""


class ControlSocket:
    """The server; `async with` starts and stops it.

    The caller holds the root lock, so a socket that is there already is a dead agent's and is replaced.

    Args:
        root: where the socket lies.
        verbs: what can be asked for: each takes the arguments of the request and returns its result.
        request_timeout_seconds: how long a client may take to send its line.
    """

    def __init__(self, root: StateRoot, verbs: Mapping[str, Verb], *, request_timeout_seconds: float) -> None:
        self._path = Path(control_socket_of(str(root.path)))
        self._is_shared = self._path != root.control_socket
        self._verbs = dict(verbs)
        self._request_timeout_seconds = request_timeout_seconds
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Raises HostError if the socket cannot be made."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            with socket_address(self._path) as address:
                listener.bind(address)
            # Nobody can connect before the server listens, so nobody sees it with wider permissions.
            self._path.chmod(0o660 if self._is_shared else 0o600)
        except OSError as error:
            listener.close()
            raise HostError(
                f"the control socket {self._path} cannot be made: {error.strerror or error}",
                "Mend the permissions of the state root, or choose another one with --state-root.",
            ) from error
        self._server = await asyncio.start_unix_server(self._accept, sock=listener, limit=LONGEST_LINE_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        # Not wait_closed: since Python 3.12 it waits for every client, however slow.
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(self._serve(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            reply = await self._reply_to(reader, writer)
            if reply is not None:
                writer.write(encoded(reply))
                await writer.drain()
        except ConnectionError:
            log.debug("control_client_left")
        finally:
            writer.close()

    async def _reply_to(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> JsonObject | None:
        """The reply; None to a client that says nothing in time, or more than a line may hold."""
        try:
            async with asyncio.timeout(self._request_timeout_seconds):
                line = await reader.readline()
        except (TimeoutError, ValueError):
            return None
        try:
            uid = peer_uid(writer.get_extra_info("socket"))
            return {"result": await self._answer(line, is_owner=uid in {0, os.geteuid()})}
        except JourneymanError as error:
            return _refusal(error)
        except Exception:
            log.exception("control_request_failed")
            return _refusal(HostError("the agent failed at this; its log says why"))

    async def _answer(self, line: bytes, *, is_owner: bool) -> JsonObject:
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            request = None
        match request:
            case {"verb": str(verb), "args": dict(args)}:
                pass
            case _:
                raise UsageError("a request is one line of JSON with verb and args")
        check_peer(verb, is_owner=is_owner, is_shared=self._is_shared)
        if verb not in self._verbs:
            raise UsageError(
                f"the agent does not know {verb!r}", f"It knows {', '.join(sorted(self._verbs))}."
            )
        return await self._verbs[verb](args)


def _refusal(error: JourneymanError) -> dict[str, Any]:
    return {
        "error": {"message": error.message, "advice": error.advice, "exitCode": error.exit_code},
    }


def check_peer(verb: str, *, is_owner: bool, is_shared: bool) -> None:
    """Lets root and the agent's own user do anything, and the group of a shared socket look.

    Args:
        verb: what is asked for.
        is_owner: whether root or the agent's own user asks.
        is_shared: whether the kernel lets the agent's group, and nobody else, connect.

    Raises:
        HostError: whoever asks may not.
    """
    if is_owner or (is_shared and verb in READING):
        return
    raise HostError(
        f"only root and the agent's own user may ask for {verb!r}",
        "Run this as one of them, such as by sudo.",
    )


def peer_uid(peer: socket.socket) -> int:
    """The user at the other end of a Unix socket, as the kernel knows it."""
    if sys.platform == "darwin":
        credentials = peer.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, XUCRED_BYTES)
        return int(struct.unpack_from("=II", credentials)[1])
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])

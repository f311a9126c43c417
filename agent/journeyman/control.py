"""The control socket as its clients see it: the wire format, the address, and one blocking call.

A request is one line of JSON, `{"verb": ..., "args": {...}}`; so is its reply, `{"result": {...}}` or
`{"error": {"message", "advice", "exitCode"}}`.  Then the connection ends.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import contextmanager

from journeyman.errors import HostError, JourneymanError
from journeyman_updater.contract.control_socket import control_socket_of

# A variable of this name is true to type checkers; `lane run` loads this file and has no time for more.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from journeyman_updater.contract import StateRoot

# struct sockaddr_un holds 108 bytes on Linux and 104 on macOS, with a zero byte at the end.
LONGEST_SOCKET_PATH_BYTES = 103
LONGEST_LINE_BYTES = 1024 * 1024


def call(root: StateRoot, verb: str, *, timeout_seconds: float = 10, **args: Any) -> dict[str, Any]:
    """As `ask`, where the state root is at hand as paths."""
    return ask(str(root.path), verb, timeout_seconds=timeout_seconds, **args)


def ask(root: str, verb: str, *, timeout_seconds: float, **args: Any) -> dict[str, Any]:
    """Asks the running agent for something and returns its answer.

    Args:
        root: the state root of the agent.
        verb: what to do.
        timeout_seconds: for connecting, and again for each part of the answer.
        args: JSON values.

    Raises:
        HostError: no agent runs there, it may not be asked, or it does not answer.
        JourneymanError: the agent refused; message, advice and exit code are the agent's.
    """
    try:
        with socket_address(control_socket_of(root)) as address, socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_seconds)
            connection.connect(address)
            connection.sendall(encoded({"verb": verb, "args": args}))
            with connection.makefile("rb") as stream:
                line = stream.readline(LONGEST_LINE_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise HostError(
            f"no agent runs on the state root {root}",
            "Start it with `journeyman run`, or name its root with --state-root.",
        ) from error
    except PermissionError as error:
        raise HostError(
            f"the agent on {root} belongs to another user",
            "Run this as that user, as root, or as somebody in the group of a system install's agent.",
        ) from error
    except OSError as error:
        raise HostError(f"the agent on {root} does not answer: {error}", "Try again.") from error
    return _result_of(line, root)


def encoded(value: Mapping[str, Any]) -> bytes:
    """One line of JSON."""
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


@contextmanager
def socket_address(path: str | os.PathLike[str], descriptors: str = "/proc/self/fd") -> Iterator[str]:
    """An address for bind or connect that leads to `path`, however long that is.

    A long path is reached through a short alias of its folder, which is only needed during the call.

    Args:
        path: of the socket; its folder must exist.
        descriptors: where Linux shows open descriptors as files; on hosts without it the alias is a
            symbolic link instead.
    """
    folder, name = os.path.split(path)
    if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH_BYTES:
        yield os.fspath(path)
    elif os.path.isdir(descriptors):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield os.path.join(descriptors, str(descriptor), name)
        finally:
            os.close(descriptor)
    else:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="jm-") as short:
            alias = os.path.join(short, "r")
            os.symlink(os.path.abspath(folder), alias, target_is_directory=True)
            yield os.path.join(alias, name)


def _result_of(line: bytes, root: str) -> dict[str, Any]:
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    match reply:
        case {"result": dict(result)}:
            return result
        case {"error": {"message": str(message), "advice": str(advice), "exitCode": int(exit_code)}}:
            refused = JourneymanError(message, advice)
            refused.exit_code = exit_code
            raise refused
        case _:
            raise HostError(f"the agent on {root} ended before it answered", "See its log.")

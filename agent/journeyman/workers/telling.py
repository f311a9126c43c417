"""What a model server's worker tells the agent by files: where it listens, and why it cannot."""

from __future__ import annotations

import errno
import json
import socket
import sys
from pathlib import Path

from journeyman.core.runtimes.base import LISTEN_HOST
from journeyman.core.server_failure import Failure, FailureKind
from journeyman.core.worker_specs import ENDPOINT_FILE, FAILURE_FILE, REASON_FILE
from journeyman_updater.contract import write_durably


class ServerFailedError(Exception):
    """The server cannot serve.

    Args:
        failure: why.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def tell_endpoint(base_url: str) -> None:
    """Says where it listens."""
    write_durably(Path(ENDPOINT_FILE), json.dumps({"base_url": base_url}).encode())
    print(f"serving on {base_url}", flush=True)


def tell_failure(failure: Failure) -> int:
    """Says why it ends, and returns the exit code."""
    write_durably(Path(REASON_FILE), failure.message.encode())
    write_durably(Path(FAILURE_FILE), failure.to_json())
    is_model = failure.exit_code == Failure(FailureKind.DOES_NOT_LOAD, "").exit_code
    print(f"journeyman-{'model' if is_model else 'worker'}-error: {failure.message}", file=sys.stderr)
    return failure.exit_code


def refuse_held_port(port: int) -> None:
    """Looks whether a port that people have chosen is free, before minutes go into loading a model.

    Raises:
        ServerFailedError: somebody has it; the message says who.
    """
    if not port:
        return
    with socket.socket() as probe:
        # As servers do it: connections of a predecessor that are still closing do not hold a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LISTEN_HOST, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                message = f"cannot listen on port {port}: {error.strerror}"
                raise ServerFailedError(Failure(FailureKind.CRASHED, message)) from error
            # Imported here, as every start of a server would wait for it.
            from journeyman.proxy.life import owner_of

            message = f"port {port} is taken by {owner_of(port)}"
            raise ServerFailedError(Failure(FailureKind.PORT_HELD, message)) from error

"""Serves one model by a program of somebody else: `python -m journeyman.workers.program_server`.

Runs in the folder that holds `config.json` and `api-key`.  It starts the runtime's program as its child on a
loopback port that the kernel chooses, tells it in `endpoint.json` once that very process listens, and ends
with the child: with one line in `reason.txt` that says why, and an exit code that says whether it is worth
another try.  On SIGTERM it waits until nobody is being answered, unless a SIGINT follows, and ends the child.

Left to others: whether the model fits into memory, restarts, and proving that it generates.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from journeyman.core.completion import KEY_FILE
from journeyman.core.runtimes.base import KEY_PLACE, Launch, Runtime, options_in
from journeyman.core.runtimes.catalogue import PROGRAMS
from journeyman.core.server_config import ServerConfig
from journeyman.core.server_failure import Failure, FailureKind, failure_in, failure_of_exit
from journeyman.core.worker_specs import CONFIG_FILE
from journeyman.errors import ConfigError
from journeyman.workers.telling import ServerFailedError, refuse_held_port, tell_endpoint, tell_failure
from journeyman_updater.contract import WorkerExit, WorkerFolder, write_durably

HELP_SECONDS = 30.0
LOOK_SECONDS = 0.05
# How long a child that answers nobody may take to end.
END_SECONDS = 5.0
# A client may be between two connections at the first look.
IDLE_LOOKS = 2
LAST_WORDS_SECONDS = 1.0
LAST_WORDS_BYTES = 64 * 1024
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


class Events:
    """Signals, as a wait that they end; what came before the wait is not lost."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(write, False)
        signal.set_wakeup_fd(write)
        self.seen: set[int] = set()
        for number in SIGNALS:
            signal.signal(number, lambda number, _: self.seen.add(number))

    def wait(self, seconds: float | None) -> None:
        """Returns at the next signal, or after `seconds`; None waits for ever."""
        if select.select([self._read], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 64)


def main() -> int:
    """Serves until SIGTERM.

    Returns:
        The exit code.
    """
    events = Events()
    try:
        config = ServerConfig.from_json(Path(CONFIG_FILE).read_bytes())
        child = _start(config)
        _serve(child, events)
        _end(child, events)
    except ServerFailedError as error:
        return tell_failure(error.failure)
    except ConfigError as error:
        return tell_failure(Failure(FailureKind.BAD_OPTION, error.message))
    return 0


def _start(config: ServerConfig) -> subprocess.Popen[bytes]:
    runtime = PROGRAMS[config.runtime]
    if not Path(config.path).exists():
        raise ServerFailedError(Failure(FailureKind.MISSING, f"{config.path}: No such file or directory"))
    refuse_held_port(config.port)
    program = _program(config, runtime)
    options = _options(program) if runtime.reads_help else frozenset[str]()
    launch = runtime.launch(config, options, KEY_FILE)
    _write_files(launch)
    try:
        # In a group of its own, as the shim signals ours: it hears SIGTERM when its last client has left.
        return subprocess.Popen(
            [*program, *launch.argv],
            env={**os.environ, **launch.env},
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    except OSError as error:
        raise _missing(f"{program[0]} cannot be started: {error.strerror}") from error


def _program(config: ServerConfig, runtime: Runtime) -> list[str]:
    """The program, and what makes it a server where it is a Python."""
    if runtime.module:
        return [config.program or sys.executable, "-m", runtime.module]
    name = config.program or runtime.program
    beside_us = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    found = shutil.which(name, path=beside_us)
    if found is None:
        raise _missing(f"the program {name} is not here; install it, or set `program` to its path")
    return [found]


def _missing(message: str) -> ServerFailedError:
    return ServerFailedError(Failure(FailureKind.RUNTIME_MISSING, message))


def _options(program: list[str]) -> frozenset[str]:
    try:
        told = subprocess.run(
            [*program, "--help"],
            capture_output=True,
            timeout=HELP_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _missing(f"{program[0]} does not say what it can do: {error}") from error
    options = options_in((told.stdout + told.stderr).decode(errors="replace"))
    if not options:
        ended = WorkerExit(told.returncode, None, 0.0, "")
        if told.returncode < 0:
            ended = WorkerExit(None, -told.returncode, 0.0, "")
        raise ServerFailedError(failure_of_exit(ended, program[0]))
    return options


def _write_files(launch: Launch) -> None:
    key = Path(KEY_FILE).read_bytes().strip()
    for name, content in launch.files.items():
        path = Path(name)
        path.touch(mode=0o600)
        write_durably(path, content.replace(KEY_PLACE.encode(), key))


def _serve(child: subprocess.Popen[bytes], events: Events) -> None:
    """Tells where the child listens, and returns when it is to end."""
    while signal.SIGTERM not in events.seen:
        _refuse_end(child)
        port = _port_of(child)
        if port is not None:
            tell_endpoint(f"http://127.0.0.1:{port}/v1")
            break
        events.wait(LOOK_SECONDS)
    while signal.SIGTERM not in events.seen:
        _refuse_end(child)
        events.wait(None)


def _refuse_end(child: subprocess.Popen[bytes]) -> None:
    """Raises ServerFailedError: the child has ended, though nobody has asked it to."""
    code = child.poll()
    if code is None:
        return
    ended = WorkerExit(code if code >= 0 else None, -code if code < 0 else None, 0.0, "")
    by_exit = failure_of_exit(ended)
    if by_exit.kind in {FailureKind.UNSUPPORTED_PROCESSOR, FailureKind.KILLED}:
        raise ServerFailedError(by_exit)
    raise ServerFailedError(_said() or by_exit)


def _said() -> Failure | None:
    """The cause in its last words, which the shim may still be writing down."""
    folder = WorkerFolder(Path.cwd().parent)
    deadline = time.monotonic() + LAST_WORDS_SECONDS
    while True:
        for log in (folder.stderr, folder.stdout):
            with contextlib.suppress(OSError), log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LAST_WORDS_BYTES))
                failure = failure_in(file.read(LAST_WORDS_BYTES).decode(errors="replace"))
                if failure is not None:
                    return failure
        if time.monotonic() > deadline:
            return None
        time.sleep(LOOK_SECONDS)


def _port_of(child: subprocess.Popen[bytes]) -> int | None:
    """Where the child listens: its own socket, so that nobody else's server is taken for it."""
    ports = [
        connection.laddr for connection in _connections(child) if connection.status == psutil.CONN_LISTEN
    ]
    for address in ports:
        if not ipaddress.ip_address(address.ip).is_loopback:
            child.kill()
            message = f"the server listens on {address.ip}; only 127.0.0.1 is allowed"
            raise ServerFailedError(Failure(FailureKind.BAD_OPTION, message))
    return ports[0].port if ports else None


def _connections(child: subprocess.Popen[bytes]) -> Iterator[Any]:
    """Those of the child, and of its own children, as a program may be a script that starts another."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(child.pid)
        for each in (process, *process.children(recursive=True)):
            yield from each.net_connections("tcp")


def _end(child: subprocess.Popen[bytes], events: Events) -> None:
    """Ends the child once it answers nobody; who is in a hurry sends SIGINT, or in the end SIGKILL."""
    idle_looks = 0
    while idle_looks < IDLE_LOOKS and child.poll() is None and signal.SIGINT not in events.seen:
        busy = any(connection.status == psutil.CONN_ESTABLISHED for connection in _connections(child))
        idle_looks = 0 if busy else idle_looks + 1
        events.wait(LOOK_SECONDS)
    child.terminate()
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        # Some wait for a client that does not read, some have hung: it answers nobody whom we would wait for.
        child.kill()
        child.wait()


if __name__ == "__main__":
    sys.exit(main())

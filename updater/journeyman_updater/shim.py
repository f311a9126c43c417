"""The parent of one worker: `python -m journeyman_updater.shim WORKER_FOLDER`.

It starts what `spec.json` says, keeps the output in bounded logs, copies it to whoever waits for it, hands
signals on, and writes down how the worker ended, so that the agent may come and go meanwhile.  The file
names and formats are those of `journeyman_updater.contract.worker_files`.

The order of a start is what makes it safe to kill anybody at any moment: the worker's process is made
first but held at a gate, then its identity is made durable in `record.json`, and only then the gate
opens and the program runs.  If the shim dies before, the gate closes and the program never runs.

Left to others: deciding what to run, limits and sandboxes (part of `argv`), restarting, cleaning up.
Everything is imported at the start, as the release that this file belongs to may be gone when it ends; and
little is, as the worker waits for it: no dataclasses, typing or pathlib.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time

from journeyman_updater.contract import worker_files
from journeyman_updater.contract.cgroup import enter_worker_cgroup
from journeyman_updater.contract.durable import write_durably
from journeyman_updater.contract.process_table import boot_id, signal_session_of, start_time
from journeyman_updater.shim_output import BoundedLog, Output

# A variable of this name is true to type checkers.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

CANNOT_START = 127
BAD_USAGE = 2
BAD_SPEC = 78
STARTED = b"started"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# How long output is still read after the worker's end: a daemon that it left behind may hold the pipes.
DRAIN_SECONDS = 2.0


class CannotStartError(Exception):
    """The worker's program could not be started."""


class HeldWorker:
    """A process that becomes the worker once `release` is called, and nothing if the shim dies before."""

    def __init__(self, spec: dict[str, Any], folder: str) -> None:
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        gate, self._gate = os.pipe()
        self._failure, failure = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # The child's own copy of the far end would keep the gate from ever closing.
            os.close(self._gate)
            cwd = spec["cwd"] or os.path.join(folder, worker_files.FILES)
            _become_worker(spec, cwd, (gate, stdout, stderr, failure))
        for descriptor in (stdout, stderr, gate, failure):
            os.close(descriptor)

    def release(self) -> None:
        """Lets the program run.

        Raises:
            CannotStartError: there is no such program, or the system refused it.
        """
        os.write(self._gate, b"g")
        os.close(self._gate)
        reason = os.read(self._failure, 4096)
        os.close(self._failure)
        if reason:
            os.waitpid(self.pid, 0)
            raise CannotStartError(reason.decode(errors="replace"))


def _become_worker(spec: dict[str, Any], cwd: str, descriptors: tuple[int, int, int, int]) -> NoReturn:
    gate, stdout, stderr, failure = descriptors
    try:
        for number in (*FORWARDED, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.setsid()
        if not os.read(gate, 1):
            os._exit(0)
        os.chdir(cwd)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.execvpe(spec["argv"][0], spec["argv"], spec["env"])  # noqa: S606  Starting it is what a shim is for.
    except (OSError, ValueError, TypeError, IndexError) as error:
        reason = getattr(error, "strerror", None) or error
        os.write(failure, f"cannot start {' '.join(map(str, spec['argv'][:1]))!r}: {reason}".encode())
    finally:
        os._exit(CANNOT_START)


def supervise(worker: dict[str, Any], outputs: list[Output], wakeup: int) -> tuple[int, int]:
    """Copies output and hands signals on until the worker has ended and its output has been read.

    Without events it sleeps in the kernel and wakes up for nothing.  What a reader of a copy has not taken
    yet is kept for it, until a signal says that it is not worth waiting for.

    Args:
        worker: who the worker, our child, is.
        outputs: its two streams.
        wakeup: delivers one byte for each signal, see `signal.set_wakeup_fd`.

    Returns:
        The wait status of the worker, and the most memory that one of its processes had, in bytes.
    """
    ended: tuple[int, int] | None = None
    deadline: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(wakeup, selectors.EVENT_READ)
        for output in outputs:
            output.watch(selector)
        while ended is None or _has_output(selector, outputs, deadline):
            waits = deadline is not None and not any(output.pending for output in outputs)
            timeout = max(0.0, deadline - time.monotonic()) if waits and deadline is not None else None
            for key, _ in selector.select(timeout):
                if key.data is not None:
                    key.data.move(selector)
                    continue
                numbers = os.read(wakeup, 64)
                if ended is not None and not set(numbers).isdisjoint(FORWARDED):
                    return ended
                ended = ended or _handle_signals(worker, numbers)
            if ended is not None and deadline is None:
                deadline = time.monotonic() + DRAIN_SECONDS
    return ended


def _has_output(selector: selectors.BaseSelector, outputs: list[Output], deadline: float | None) -> bool:
    """Whether output may still come: the wake-up pipe always stays, so a longer map says that it may."""
    in_time = deadline is None or time.monotonic() < deadline
    return len(selector.get_map()) > 1 and (in_time or any(output.pending for output in outputs))


def _handle_signals(worker: dict[str, Any], numbers: bytes) -> tuple[int, int] | None:
    for number in numbers:
        if number in FORWARDED:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker["pid"], number)
    ended, status, used = os.wait4(worker["pid"], os.WNOHANG)
    if not ended:
        return None
    signal_session_of(worker["boot_id"], worker["pid"], worker["start_time"], signal.SIGKILL)
    # getrusage(2): kilobytes on Linux, bytes on macOS.
    return status, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def run(folder: str, spec: dict[str, Any], handshake: int) -> None:
    """The life of the detached shim, from the start of the worker to `exit.json`.

    Args:
        folder: the worker's folder.
        spec: what to run.
        handshake: a pipe that gets `STARTED` once the record is durable and the program runs, or the
            reason why it cannot be started.
    """
    wakeup = _catch_signals()
    nonce = os.urandom(16).hex()
    copies: list[int | None] = [None, None]
    copies[: len(spec["copies"])] = [_open_copy(path) for path in spec["copies"]]
    names = (worker_files.STDOUT, worker_files.STDERR)
    logs = [BoundedLog(os.path.join(folder, name), spec["log_limit_bytes"]) for name in names]
    worker = HeldWorker(spec, folder)
    outputs = [Output(*stream) for stream in zip((worker.stdout, worker.stderr), logs, copies, strict=True)]
    record = _record_of(worker.pid, folder, spec, nonce)
    record_file = os.path.join(folder, worker_files.RECORD)
    write_durably(record_file, worker_files.to_bytes(record))
    started = time.monotonic()
    try:
        worker.release()
    except CannotStartError as error:
        os.unlink(record_file)
        _write_exit(folder, nonce, code=CANNOT_START, error=str(error))
        _tell(handshake, str(error).encode())
        return
    _tell(handshake, STARTED)
    status, max_rss = supervise(record["worker"], outputs, wakeup)
    elapsed = time.monotonic() - started
    code = os.waitstatus_to_exitcode(status)
    _write_exit(folder, nonce, code=code, elapsed=elapsed, max_rss=max_rss)


def _write_exit(
    folder: str, nonce: str, *, code: int, elapsed: float = 0.0, error: str = "", max_rss: int | None = None
) -> None:
    """Says how the worker ended; a negative code is the signal that ended it."""
    ended = {
        "code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "elapsed_seconds": elapsed,
        "nonce": nonce,
        "error": error,
        "max_rss_bytes": max_rss,
    }
    write_durably(os.path.join(folder, worker_files.EXIT), worker_files.to_bytes(ended))


def _open_copy(path: str) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(f"nobody waits for its output at {path}") from error


def _tell(handshake: int, answer: bytes) -> None:
    """Answers whoever waits for the start; if they are gone, the worker goes on for the next agent."""
    with contextlib.suppress(OSError):
        os.write(handshake, answer)
        os.close(handshake)


def _catch_signals() -> int:
    wakeup, far_end = os.pipe()
    os.set_blocking(far_end, False)
    for number in (*FORWARDED, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    # Whoever started us may have blocked them.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.set_wakeup_fd(far_end, warn_on_full_buffer=False)
    return wakeup


def _record_of(pid: int, folder: str, spec: dict[str, Any], nonce: str) -> dict[str, Any]:
    now = time.time_ns()
    return {
        "worker_id": os.path.basename(folder),
        "nonce": nonce,
        "spec_digest": spec["digest"],
        "shim": _identity_of(os.getpid()),
        "worker": _identity_of(pid),
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
        + f".{now // 1000 % 10**6:06}Z",
        "kind": spec["kind"],
        "labels": spec["labels"],
    }


def _identity_of(pid: int) -> dict[str, Any]:
    started = start_time(pid)
    if started is None:
        raise OSError("the worker's process vanished before it started")
    return {"boot_id": boot_id(), "pid": pid, "start_time": started}


def _detach() -> None:
    """Leaves the session, the terminal and the pipes of whoever started us."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def main(arguments: list[str]) -> int:
    """Starts the shim in the background and waits until its worker runs.

    Exits with 0 when the record is durable and the program runs.

    Returns:
        127 with one line on stderr when it cannot be started; 78 when there is no usable spec.
    """
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m journeyman_updater.shim WORKER_FOLDER\n")
        return BAD_USAGE
    folder = os.path.realpath(arguments[0])
    spec_file = os.path.join(folder, worker_files.SPEC)
    try:
        with open(spec_file, "rb") as file:
            spec = worker_files.spec_from(file.read())
        if spec["private"]:
            os.unlink(spec_file)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"no usable spec in {folder}: {error}\n")
        return BAD_SPEC
    os.umask(0o077)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _run_detached(folder, spec, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    if answer == STARTED:
        # Whoever starts a worker waits for us, and we have nothing to tidy up.
        os._exit(0)
    reason = answer.decode(errors="replace") or "the shim was killed while it started"
    sys.stderr.write(f"{reason}\n")
    return CANNOT_START


def _run_detached(folder: str, spec: dict[str, Any], handshake: int) -> NoReturn:
    try:
        _detach()
        enter_worker_cgroup(os.path.basename(folder))
        run(folder, spec, handshake)
    except OSError as error:
        # Before the start the reader is told; afterwards nobody listens, and a missing exit.json says it.
        _tell(handshake, f"cannot start: {error}".encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

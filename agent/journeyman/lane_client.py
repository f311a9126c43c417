"""The other end of `journeyman lane run`: asks the agent, streams the job's output, hands signals on.

The output comes through two fifos that the shim writes and only this process reads, so it is exact and live
and needs no agent.  Every question to the agent can be asked again, also to the next agent.

Kept to what the standard library loads fast, as all of it is time that the job waits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from io import FileIO

from journeyman.control import ask
from journeyman.errors import HostError, JourneymanError, UsageError
from journeyman_updater.contract import names

# A variable of this name is true to type checkers.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Any

    Reply = dict[str, Any]

CHUNK_BYTES = 64 * 1024
# An update takes the agent away for two seconds; whoever restarts it by hand takes longer.
AGENT_AWAY_SECONDS = 60.0
ASK_AGAIN_SECONDS = 0.1
CALL_TIMEOUT_SECONDS = 60.0
CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
UNCERTAIN_EXIT = 70
LONGEST_NAME = 40
NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789-."


class LaneCommand:
    """What is to be run.

    Attributes:
        argv: the command.
        name: part of the job's id, for people; empty for none.
        need: what to reserve, as the agent is told.
        timeout_seconds: how long it may run; None for no end.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        name: str = "",
        ram_bytes: int = 0,
        disk_bytes: int = 0,
        vram_bytes: int = 0,
        cpus: float = 1.0,
        timeout_seconds: float | None = None,
    ) -> None:
        self.argv = argv
        self.name = name
        self.need = {"ramBytes": ram_bytes, "diskBytes": disk_bytes, "vramBytes": vram_bytes, "cpus": cpus}
        self.timeout_seconds = timeout_seconds


class _SignalledError(Exception):
    """A signal came while we waited for the agent."""


class LaneClient:
    """One job, from the queue to its receipt.

    Args:
        root: the state root of the agent.
        command: what is to be run.
        tell: takes each line for the person at the terminal.
    """

    def __init__(self, root: str, command: LaneCommand, tell: Callable[[str], None]) -> None:
        self._root = root
        self._command = command
        self._tell = tell
        self.job_id = "-".join(filter(None, ("lane", command.name, os.urandom(5).hex())))
        self._signals: list[int] = []
        self._asking = False
        self._stops = 0
        self._began = time.monotonic()
        self._answered = False

    def run(self) -> Reply:
        """Waits for admission, runs the job to its end and returns its receipt.

        Raises:
            HostError: no agent runs there, none came back, or this host can never run it.
            InterruptedError: a signal, its argument, came while the job was in the queue.
            JourneymanError: the agent refused.
        """
        with self._caught_signals() as wakeup, _fifos(self._root, self.job_id) as (paths, readers):
            reply = self._until_started(paths)
            # One that has ended already has left its output in the fifos all the same.
            self._stream(dict(zip(readers, (1, 2), strict=True)), wakeup)
            receipt: Reply = reply.get("receipt") or self._until_ended()["receipt"]
            return receipt

    def _until_started(self, paths: tuple[str, str]) -> Reply:
        command, seen = self._command, ""
        request = {
            "id": self.job_id,
            "argv": list(command.argv),
            "cwd": os.getcwd(),
            "env": dict(os.environ),
            "copies": list(paths),
            "lead": f"session-{os.getsid(0)}",
            "timeoutSeconds": command.timeout_seconds,
            "need": command.need,
        }
        while True:
            waited = time.monotonic() - self._began
            reply = self._ask("lane-run", **request, seen=seen, waitedSeconds=waited)
            if reply["state"] in {"running", "ended"}:
                return reply
            line = reply.get("line", "")
            if line and line != seen:
                self._tell(f"{self.job_id} {line}")
            seen = line or reply["state"]

    def _until_ended(self) -> Reply:
        while True:
            reply = self._ask("lane-wait", id=self.job_id)
            if reply["state"] == "ended":
                return reply

    def _stream(self, targets: dict[FileIO, int], wakeup: int) -> None:
        """Copies the output until both streams have ended."""
        with selectors.DefaultSelector() as selector:
            selector.register(wakeup, selectors.EVENT_READ)
            for reader, target in targets.items():
                selector.register(reader, selectors.EVENT_READ, (reader, target))
            while len(selector.get_map()) > 1:
                for key, _ in selector.select():
                    if key.fd == wakeup:
                        os.read(wakeup, CHUNK_BYTES)
                        self._hand_signals_on()
                        continue
                    reader, target = key.data
                    data = reader.read(CHUNK_BYTES)
                    if not data or not self._write(target, data):
                        selector.unregister(reader)
                        # The shim forgets a reader that has gone; one that only stays silent it waits for.
                        reader.close()

    def _write(self, target: int, data: bytes) -> bool:
        """Whether somebody still reads what we write; if not, the job hears of it as it would by itself."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(target, view) :]
        except BrokenPipeError:
            self._ask("lane-signal", id=self.job_id, signal="PIPE")
            return False
        return True

    def _ask(self, verb: str, **args: Any) -> Reply:
        """One answer of the agent, or of the one that comes after it."""
        deadline = time.monotonic() + AGENT_AWAY_SECONDS
        told = False
        while True:
            try:
                self._hand_signals_on(verb)
                self._asking = True
                reply = ask(self._root, verb, timeout_seconds=CALL_TIMEOUT_SECONDS, **args)
            except _SignalledError:
                continue
            except HostError:
                # Where its folder is gone, too, the agent was taken away and will not come back.
                is_over = time.monotonic() > deadline or not os.path.isdir(self._root)
                if not self._answered or is_over:
                    raise
                if not told:
                    self._tell(f"{self.job_id} waits for the agent to come back")
                    told = True
                time.sleep(ASK_AGAIN_SECONDS)
            else:
                self._answered = True
                return reply
            finally:
                self._asking = False

    def _hand_signals_on(self, verb: str = "") -> None:
        """Once is a request to end, twice is no request."""
        while self._signals and verb != "lane-signal":
            number = self._signals.pop(0)
            self._stops += 1
            name = "KILL" if self._stops > 1 else ("HUP" if number == signal.SIGHUP else "TERM")
            try:
                left = self._ask("lane-signal", id=self.job_id, signal=name)["state"] == "left"
            except JourneymanError as error:
                if error.exit_code != UsageError.exit_code:
                    raise
                # The agent has never heard of the job: the signal was faster than our request.
                left = True
            if left:
                raise InterruptedError(number)

    @contextlib.contextmanager
    def _caught_signals(self) -> Iterator[int]:
        """Yields a descriptor that becomes readable at each signal."""
        wakeup, far_end = os.pipe()
        os.set_blocking(far_end, False)
        before = {number: signal.signal(number, self._note_signal) for number in CAUGHT}
        signal.set_wakeup_fd(far_end, warn_on_full_buffer=False)
        try:
            yield wakeup
        finally:
            signal.set_wakeup_fd(-1)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(wakeup)
            os.close(far_end)

    def _note_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)
        if self._asking:
            # Without this the call to the agent would go on first, for as long as a poll takes.
            self._asking = False
            raise _SignalledError


@contextlib.contextmanager
def _fifos(root: str, job_id: str) -> Iterator[tuple[tuple[str, str], tuple[FileIO, FileIO]]]:
    """Two fifos below the state root that we read and the shim writes: their paths, and our ends."""
    run = os.path.join(root, names.RUN)
    folder = os.path.join(run, job_id)
    paths = (os.path.join(folder, "stdout"), os.path.join(folder, "stderr"))
    readers = []
    try:
        os.mkdir(folder, 0o700)
        for path in paths:
            os.mkfifo(path, 0o600)
            readers.append(FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)))
            # A fifo that nobody has ever opened for writing never ends; one that was left does.
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        if os.geteuid() == 0:
            # Root may ask the agent of a service user, whose shim is to write there.
            owner = os.stat(run)
            for place in (folder, *paths):
                os.chown(place, owner.st_uid, owner.st_gid, follow_symlinks=False)
    except FileNotFoundError as error:
        raise HostError(
            f"no agent runs on the state root {root}",
            "Start it with `journeyman run`, or name its root with --state-root.",
        ) from error
    except OSError as error:
        raise HostError(f"no fifo can be made in {run}: {error.strerror}") from error
    try:
        yield paths, (readers[0], readers[1])
    finally:
        for reader in readers:
            reader.close()
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        os.rmdir(folder)


def exit_code_of(receipt: Reply) -> int:
    """The exit code that a shell would give the job: 128 and the signal's number where one ended it."""
    if receipt["exitCode"] is not None:
        return int(receipt["exitCode"])
    return UNCERTAIN_EXIT if receipt["signal"] is None else 128 + int(receipt["signal"])


def run_lane(root: str, command: LaneCommand, *, as_json: bool) -> int:
    """Runs the job and returns the exit code for the command line; what there is to say goes to stderr.

    Raises:
        UsageError: that is no name for a job.
        JourneymanError: as `LaneClient.run`.
    """

    def tell(line: str) -> None:
        sys.stderr.write(f"journeyman: {line}\n")
        sys.stderr.flush()

    if len(command.name) > LONGEST_NAME or not set(command.name) <= set(NAME_CHARACTERS):
        raise UsageError(
            f"{command.name!r} is no name for a job",
            f"Use small letters, digits, '-' and '.', {LONGEST_NAME} at most.",
        )
    client = LaneClient(root, command, tell)
    try:
        receipt = client.run()
    except InterruptedError as error:
        tell(f"{client.job_id} has left the queue")
        return 128 + int(error.args[0])
    if as_json:
        import json

        sys.stderr.write(json.dumps(receipt) + "\n")
    elif receipt["why"] not in {"Succeeded", "ExitNonZero", "Cancelled"}:
        detail = f": {receipt['error']}" if receipt["error"] else ""
        tell(f"{client.job_id} ended, {receipt['why']}{detail}")
    return exit_code_of(receipt)

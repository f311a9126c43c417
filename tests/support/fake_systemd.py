"""systemd as a CommandRunner: supervises real processes by the rules of systemd.service(5), and can lie."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import uuid
from pathlib import Path

from journeyman_updater.core.systemd_facts import PROPERTIES
from journeyman_updater.ports import CommandResult

NO_RESTART = 78
OK = CommandResult(0)


class FakeSystemd:
    """One unit with `Type=notify`, `Restart=always`, `KillMode=process`, as the real one shows it.

    Args:
        command: of ExecStart.
        stop_seconds: TimeoutStopSec.

    Attributes:
        answers: replies that replace what would be done, by verb; how the tool lies.
        changed: whether the unit's file has changed since it was loaded.
        burst: starts until start-limit-hit, None for no limit.
        load_state: as systemctl shows it.
        calls: the verbs that were called.
    """

    def __init__(self, command: list[str], *, stop_seconds: float) -> None:
        self._command = command
        self._stop_seconds = stop_seconds
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._invocation = ""
        self._state, self._result = "inactive", "success"
        self._is_wanted = False
        self._starts = 0
        self.answers: dict[str, CommandResult] = {}
        self.changed = False
        self.burst: int | None = None
        self.load_state = "loaded"
        self.calls: list[str] = []

    def run(self, *command: str, timeout_seconds: float) -> CommandResult:
        if command[0] == "systemd-analyze":
            return OK
        verb, *_ = [word for word in command[1:] if not word.startswith("--")]
        self.calls.append(verb)
        if verb in self.answers:
            return self.answers[verb]
        with self._lock:
            return self._do(verb)

    def shut_down(self) -> None:
        """Kills what runs and forgets it."""
        with self._lock:
            self._is_wanted = False
            process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _do(self, verb: str) -> CommandResult:
        if verb == "show":
            return self._show()
        if verb == "daemon-reload":
            self.changed = False
        elif verb == "reset-failed":
            self._starts = 0
            if self._state == "failed":
                self._state, self._result = "inactive", "success"
        elif verb in {"restart", "start", "stop"}:
            return self._queue(verb)
        return OK

    def _show(self) -> CommandResult:
        values = {
            "LoadState": self.load_state,
            "ActiveState": self._state,
            "SubState": "running" if self._state == "active" else "dead",
            "Result": self._result,
            "NeedDaemonReload": "yes" if self.changed else "no",
            "InvocationID": self._invocation,
            "MainPID": str(self._process.pid if self._process else 0),
        }
        return CommandResult(0, "".join(f"{name}={values.get(name, '')}\n" for name in PROPERTIES))

    def _queue(self, verb: str) -> CommandResult:
        """A job; it is done by another thread, as `--no-block` has it."""
        if self.load_state == "masked":
            return CommandResult(1, stderr="Failed to restart unit: Unit is masked.\n")
        self._is_wanted = False
        process = self._process
        threading.Thread(target=self._work, args=(process, verb), daemon=True).start()
        return OK

    def _work(self, process: subprocess.Popen[bytes] | None, verb: str) -> None:
        if process is not None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._stop_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        with self._lock:
            self._process, self._state = None, "inactive"
            if verb != "stop":
                self._start()

    def _start(self) -> None:
        self._starts += 1
        if self.burst is not None and self._starts > self.burst:
            self._state, self._result = "failed", "start-limit-hit"
            return
        self._is_wanted, self._state, self._result = True, "active", "success"
        self._invocation = uuid.uuid4().hex
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, start_new_session=True)
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            # After a stop that was asked for, its own thread goes on.
            if process is not self._process or not self._is_wanted:
                return
            self._process = None
            if code == NO_RESTART:
                self._state, self._result, self._is_wanted = "failed", "exit-code", False
            else:
                self._start()


class FakeRunsv:
    """runsv and sv as a CommandRunner: one service, and its `supervise/status`.

    Args:
        command: of `run`.
        service: the folder of the service.

    Attributes:
        answers: replies that replace what would be done, by verb; how sv lies.
        calls: the verbs that were called.
    """

    def __init__(self, command: list[str], service: Path) -> None:
        self._command = command
        self._status = service / "supervise" / "status"
        self._status.parent.mkdir(parents=True)
        alive = self._status.with_name("ok")
        os.mkfifo(alive)
        self._alive = os.open(alive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stamp = 2**62
        self._is_wanted = True
        self._got_term = False
        self.answers: dict[str, CommandResult] = {}
        self.calls: list[str] = []

    def run(self, *command: str, timeout_seconds: float) -> CommandResult:
        verb = next(word for word in command[1:] if word.isalpha() or "-" in word[1:])
        self.calls.append(verb)
        if verb in self.answers:
            return self.answers[verb]
        with self._lock:
            return self._do(verb)

    def start(self) -> None:
        """Starts the service as runsv does."""
        with self._lock:
            self._is_wanted, self._got_term = True, False
            self._stamp += 1
            self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, start_new_session=True)
            self._write(1)
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()

    def shut_down(self) -> None:
        """Kills what runs and forgets it."""
        with self._lock:
            self._is_wanted = False
            process = self._process
        if process is not None:
            process.kill()
            process.wait()
        os.close(self._alive)

    def _do(self, verb: str) -> CommandResult:
        self._is_wanted = verb != "force-shutdown"
        if verb == "kill" and self._process is not None:
            self._process.kill()
        elif verb in {"restart", "up"} and self._process is None:
            self.start()
        elif verb in {"restart", "force-shutdown"} and self._process is not None:
            self._got_term = True
            self._write(1)
            self._process.send_signal(signal.SIGTERM)
            return CommandResult(1, "timeout: run: service: (pid 1) 9s, got TERM\n")
        return CommandResult(0, "ok: run: service: (pid 1) 0s\n")

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            self._process = None
            self._stamp += 1
            if self._is_wanted and code != NO_RESTART:
                self.start()
            else:
                self._is_wanted = False
                self._write(0)

    def _write(self, state: int) -> None:
        pid = self._process.pid if self._process else 0
        wanted = b"u" if self._is_wanted else b"d"
        data = self._stamp.to_bytes(8) + bytes(4) + pid.to_bytes(4, "little")
        temporary = self._status.with_name("status.new")
        temporary.write_bytes(data + b"\0" + wanted + bytes([self._got_term, state]))
        os.replace(temporary, self._status)

"""Stands in for a service manager where there is none: keeps the guard, and so the agent, running.

Standard library alone, syntax of Python 3.9.  It starts the guard, starts it again with a back-off when what
the guard became has ended, runs the updater every so often and when the wake-up file is touched, and passes
signals on.  An updater that never ends is killed, as nothing could be updated any more.  SIGUSR1 ends the
back-off, SIGCONT lets it look at the wake-up file now.  One parent a state root: it holds `run/guard.lock`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

RESTART = 75
BAD_CONFIG = 78
LONGEST_DELAY_SECONDS = 60.0
GOOD_RUN_SECONDS = 10.0
"""A run of this length ends the back-off."""
SHORT_RUN_SECONDS = 1.0
"""Whatever ends faster than this waits, even if it says that it wants to be started again."""
LONGEST_UPDATE_SECONDS = 6 * 3600.0
"""A slow link may take hours.  What a killed updater left is finished by the next one."""


class Parent:
    """The loop.  It writes `run/guard.json`, by which others find the agent, and adopts what is there."""

    def __init__(
        self,
        root: Path,
        guard: list[str],
        updater: list[str] | None,
        every_seconds: float,
        longest_update_seconds: float,
        look_seconds: float,
    ) -> None:
        self.root = root
        self.guard = guard
        self.updater = updater
        self.every_seconds = every_seconds
        self.longest_update_seconds = longest_update_seconds
        self.look_seconds = look_seconds
        self.process: subprocess.Popen[bytes] | None = None
        self.child: int | None = None
        self.child_start: str | None = None
        self.started = 0.0
        self.delay = 0.0
        self.is_asked = False
        self.next_start = 0.0
        self.updating: subprocess.Popen[bytes] | None = None
        self.next_update = 0.0
        self.last_moment = 0.0
        self.stamp = self._wake_up_stamp()
        self.stopping = False
        self.signals: list[int] = []
        self.reader, writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        passed_on = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
        for number in (signal.SIGCHLD, signal.SIGCONT, signal.SIGUSR1, *passed_on):
            signal.signal(number, lambda number, _frame: self.signals.append(number))

    def run(self) -> int:
        """Until SIGTERM or SIGINT, which the agent gets first."""
        self._adopt()
        while True:
            self._pass_signals_on()
            self._reap()
            if self.stopping and self.child is None:
                self._write_who_runs()
                return 0
            if not self.stopping:
                self._start_what_is_due()
            if select.select([self.reader], [], [], self.look_seconds)[0]:
                os.read(self.reader, 4096)

    def _adopt(self) -> None:
        """Goes on with the agent of a parent that was killed, rather than start a second one beside it."""
        try:
            found = json.loads((self.root / "run" / "guard.json").read_bytes())
            child, start = int(found["child"]), str(found["child_start"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        if start == start_time(child):
            self.child, self.child_start = child, start
            self._write_who_runs()

    def _pass_signals_on(self) -> None:
        while self.signals:
            number = self.signals.pop(0)
            if number == signal.SIGUSR1:
                # A restart was asked for: what ends next, or has ended, is started again without delay.
                self.is_asked, self.next_start = True, 0.0
            elif number not in (signal.SIGCHLD, signal.SIGCONT):
                self.stopping = self.stopping or number in (signal.SIGTERM, signal.SIGINT)
                if self.child is not None:
                    os.kill(self.child, number)

    def _reap(self) -> None:
        if self.updating is not None:
            if self.updating.poll() is not None:
                self.updating = None
            elif time.monotonic() >= self.last_moment:
                self.updating.kill()
        if self.child is None:
            return
        if self.process is not None:
            code = self.process.poll()
        else:
            # An adopted agent's exit code goes to init, and we only see that it is gone.
            code = None if start_time(self.child) == self.child_start else 0
        if code is not None:
            self._ended(code)

    def _ended(self, code: int) -> None:
        now = time.monotonic()
        ran = now - self.started
        if self.is_asked or ran >= (SHORT_RUN_SECONDS if code == RESTART else GOOD_RUN_SECONDS):
            self.delay = 0.0
        elif code == BAD_CONFIG:
            self.delay = LONGEST_DELAY_SECONDS
        else:
            self.delay = min(LONGEST_DELAY_SECONDS, self.delay * 2 or 1.0)
        self.process, self.child, self.next_start = None, None, now + self.delay

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        if self.child is None and now >= self.next_start:
            self.is_asked = False
            self.process, self.started = subprocess.Popen(self.guard), now
            self.child = self.process.pid
            self.child_start = start_time(self.child)
            self._write_who_runs()
        stamp = self._wake_up_stamp()
        if self.updater and self.updating is None and (now >= self.next_update or stamp != self.stamp):
            self.updating = subprocess.Popen(self.updater)
            self.next_update, self.stamp = now + self.every_seconds, stamp
            self.last_moment = now + self.longest_update_seconds

    def _wake_up_stamp(self) -> int | None:
        try:
            return (self.root / "run" / "update-wanted").stat().st_mtime_ns
        except OSError:
            return None

    def _write_who_runs(self) -> None:
        path = self.root / "run" / "guard.json"
        temporary = path.with_name(".guard.json.tmp")
        value = {
            "format": 1,
            "parent": os.getpid(),
            "parent_start": start_time(os.getpid()),
            "child": self.child,
            "child_start": self.child_start,
        }
        temporary.write_text(json.dumps(value))
        os.replace(temporary, path)


def start_time(pid: int) -> str | None:
    """The raw start time of a process, as `contract/process.py` reads it; None for none and for a zombie."""
    if sys.platform == "darwin":
        command = ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)]
        environment = {"LC_ALL": "C", "TZ": "UTC"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        text = done.stdout.strip()
        state, _, started = text.partition(" ")
        return None if not started or state.startswith("Z") else started.strip()
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def main(arguments: list[str]) -> int:
    """Holds the lock and runs the loop."""
    parser = argparse.ArgumentParser(prog="parent.py", description="Keep Journeyman running.")
    parser.add_argument("--root", required=True, help="the state root")
    parser.add_argument("--guard", required=True, help="the program that starts the guard")
    parser.add_argument("--updater", help="the program that runs the updater once")
    parser.add_argument("--every", type=float, default=300.0, help="seconds between two runs of the updater")
    parser.add_argument(
        "--longest-update",
        type=float,
        default=LONGEST_UPDATE_SECONDS,
        help="seconds after which a run of the updater is killed",
    )
    parser.add_argument(
        "--look",
        type=float,
        default=1.0,
        help="seconds between two looks at the wake-up file without SIGCONT",
    )
    parser.add_argument("rest", nargs="*", help="arguments for the agent, after --")
    options = parser.parse_args(arguments)
    run = Path(options.root) / "run"
    run.mkdir(mode=0o700, parents=True, exist_ok=True)
    # subprocess closes the descriptor in children, so the lock ends with this process.
    lock = os.open(run / "guard.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write(
            f"journeyman: another parent keeps the agent of {options.root}; stop that one first\n"
        )
        return 73
    guard = [options.guard, "--root", options.root, "--", *options.rest]
    updater = [options.updater, "--root", options.root] if options.updater else None
    root, limits = Path(options.root), (options.every, options.longest_update, options.look)
    return Parent(root, guard, updater, *limits).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""launchd in a thread: a real supervisor of real processes, and of nothing but what a test gives it.

It does what launchd is documented or was seen to do: jobs live in domains, in memory; KeepAlive with a
ThrottleInterval that counts from the last start; removal that lingers until the process has ended or
ExitTimeOut has killed it; the rest of a dead job's process group is killed; overrides that disable a label
are kept on disk.  `fake_launchctl.py` gives it launchctl's voice; `Faults` are the cases that were seen to go
wrong.

Sources: launchd.plist(5); launchd's last open source (core.c: ThrottleInterval from the start on a monotonic
clock, ExitTimeOut of 20 s by default); reports on asynchronous bootout (headroomlabs-ai/headroom#1289,
chenhg5/cc-connect#1834), spawns kept back (Szotasz/marveen#815) and overrides (Open330/muxa#134).
"""

from __future__ import annotations

import contextlib
import os
import plistlib
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EX_CONFIG = 78


@dataclass
class Faults:
    """What goes wrong; a test switches them.

    Attributes:
        forced: replies by verb, used up one by one before anything is done.
        lies: verbs (`kickstart -k`, `kill`, `bootout`) that say 0 and do nothing.
        refused: verbs that are not permitted.
        hanging: verbs that never return.
        disabled_says: what bootstrap says of a disabled label: 119, 5, or 0 for a job that never runs.
        never_spawns: registered jobs wait for a kickstart (`speculative`).
        respawn_kept_back: ended jobs wait for a kickstart (`inefficient`, as in Low Power Mode).
        unprinted: fields that `print` does not have, as in another release of macOS.
        load_fails: `load` and `unload` fail, with a code that says nothing.
    """

    forced: dict[str, list[int]] = field(default_factory=dict)
    lies: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    hanging: set[str] = field(default_factory=set)
    disabled_says: int = 119
    never_spawns: bool = False
    respawn_kept_back: bool = False
    unprinted: set[str] = field(default_factory=set)
    load_fails: bool = False


@dataclass
class Job:
    """A registered job; its property list is the one that was read when it was registered."""

    domain: str
    path: Path
    plist: dict[str, Any]
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    runs: int = 0
    last_exit: int | None = None
    pended: str | None = None
    is_leaving: bool = False
    respawn_at_once: bool = False
    timer: threading.Timer | None = None

    @property
    def label(self) -> str:
        return str(self.plist["Label"])

    @property
    def state(self) -> str:
        if self.is_leaving:
            return "SIGTERMed"
        if self.process is not None:
            return "running"
        return "spawn scheduled" if self.timer is not None or self.pended == "inefficient" else "not running"


class FakeLaunchd:
    """The supervisor.

    Args:
        folder: for the overrides; `LaunchDaemons` in it is what a boot registers.
        domains: that exist.
        scale: real seconds for one second of a property list.
    """

    def __init__(self, folder: Path, *, domains: set[str], scale: float = 0.02) -> None:
        self.domains = domains
        self.faults = Faults()
        self.jobs: dict[tuple[str, str], Job] = {}
        self.lock = threading.RLock()
        self.closed = threading.Event()
        self._overrides = folder / "disabled.plist"
        self.launch_daemons = folder / "LaunchDaemons"
        self.launch_daemons.mkdir(exist_ok=True)
        self._scale = scale
        self._waiters: list[threading.Thread] = []

    def close(self) -> None:
        """Ends every process that it has started."""
        self.closed.set()
        self._end_all()

    def reboot(self) -> None:
        """Ends everything and registers what a boot would: all of LaunchDaemons that is not disabled."""
        self._end_all()
        with self.lock:
            self.jobs.clear()
            for path in sorted(self.launch_daemons.glob("*.plist")):
                if not self.is_disabled("system", plistlib.loads(path.read_bytes())["Label"]):
                    self.register("system", path)

    # Overrides, which outlive jobs and boots.

    def overrides(self) -> dict[str, bool]:
        """`DOMAIN/LABEL`, and whether it is disabled."""
        with contextlib.suppress(FileNotFoundError):
            return dict(plistlib.loads(self._overrides.read_bytes()))
        return {}

    def is_disabled(self, domain: str, label: str) -> bool:
        return self.overrides().get(f"{domain}/{label}", False)

    def override(self, domain: str, label: str, *, disabled: bool) -> None:
        self._overrides.write_bytes(plistlib.dumps({**self.overrides(), f"{domain}/{label}": disabled}))

    # Jobs.

    def register(self, domain: str, path: Path) -> Job:
        """Takes a property list into memory and starts the job if it says so."""
        with self.lock:
            job = Job(domain, path, plistlib.loads(path.read_bytes()))
            self.jobs[domain, job.label] = job
            if job.plist.get("RunAtLoad") or job.plist.get("KeepAlive"):
                if self.faults.never_spawns:
                    job.pended = "speculative"
                else:
                    self.spawn(job)
            return job

    def remove(self, job: Job) -> None:
        """Begins to remove a job; it is gone when its process is."""
        with self.lock:
            self._cancel(job)
            job.is_leaving = True
            if job.process is None:
                del self.jobs[job.domain, job.label]
                return
            self._signal(job, signal.SIGTERM)
            timeout = job.plist.get("ExitTimeOut", 20)
            if timeout:
                self._after(job, timeout, lambda: self._signal(job, signal.SIGKILL))

    def kill_and_restart(self, job: Job) -> None:
        """`kickstart -k`: SIGKILL, and a start from memory without a throttle."""
        with self.lock:
            if job.process is None:
                self.spawn(job)
            else:
                job.respawn_at_once = True
                self._signal(job, signal.SIGKILL)

    def spawn(self, job: Job) -> None:
        """Starts the job's process, unless it runs, is leaving, or is disabled."""
        with self.lock:
            self._cancel(job)
            if job.process is not None or job.is_leaving or self.closed.is_set():
                return
            if self.is_disabled(job.domain, job.label):
                return
            job.pended, job.respawn_at_once = None, False
            job.runs, job.started = job.runs + 1, time.monotonic()
            try:
                job.process = _start(job)
            except OSError:
                job.last_exit = EX_CONFIG
                self._respawn_later(job)
                return
            waiter = threading.Thread(target=self._wait, args=(job, job.process))
            self._waiters.append(waiter)
            waiter.start()

    def _wait(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        # Without reaping, so that nobody signals another process by this pid.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self.lock:
            if not job.plist.get("AbandonProcessGroup"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            job.last_exit, job.process = process.wait(), None
            self._cancel(job)
            if job.is_leaving:
                self.jobs.pop((job.domain, job.label), None)
            elif job.respawn_at_once:
                self.spawn(job)
            elif job.plist.get("KeepAlive"):
                self._respawn_later(job)

    def _respawn_later(self, job: Job) -> None:
        if self.faults.respawn_kept_back:
            job.pended = "inefficient"
            return
        throttle = job.plist.get("ThrottleInterval", 10) * self._scale
        wait = max(0.0, job.started + throttle - time.monotonic())
        self._after(job, wait / self._scale, lambda: self.spawn(job))

    def _after(self, job: Job, seconds: float, act: Any) -> None:
        job.timer = threading.Timer(seconds * self._scale, act)
        job.timer.daemon = True
        job.timer.start()

    def _cancel(self, job: Job) -> None:
        if job.timer is not None:
            job.timer.cancel()
            job.timer = None

    def _signal(self, job: Job, number: signal.Signals) -> None:
        with self.lock:
            if job.process is not None:
                job.process.send_signal(number)

    def _end_all(self) -> None:
        with self.lock:
            for job in self.jobs.values():
                self._cancel(job)
                job.is_leaving = True
                self._signal(job, signal.SIGKILL)
        for waiter in self._waiters:
            waiter.join(timeout=10)


def _start(job: Job) -> subprocess.Popen[bytes]:
    plist = job.plist
    environment = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "XPC_SERVICE_NAME": job.label,
        **plist.get("EnvironmentVariables", {}),
    }
    with open(plist.get("StandardErrorPath", os.devnull), "ab") as log:  # noqa: PTH123
        return subprocess.Popen(
            plist["ProgramArguments"],
            cwd=plist.get("WorkingDirectory", "/"),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

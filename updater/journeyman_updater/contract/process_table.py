"""What the host knows of its processes: boot, start times, sessions.

Only what loads fast: each shim needs it, and every start of a worker waits for its shim.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys

# A session that still has new processes after so many looks forks faster than anybody can signal.
SESSION_LOOKS = 10


@functools.cache
def boot_id() -> str:
    """An identifier of this boot of the host; a PRoot guest sees that of its host."""
    if sys.platform == "darwin":
        return _output_of("/usr/sbin/sysctl", "-n", "kern.bootsessionuuid")
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def start_time(pid: int) -> str | None:
    """The raw start time of a process: clock ticks since boot on Linux, `ps` text in UTC on macOS.

    Returns:
        None if there is no such process, or only its zombie.
    """
    if sys.platform == "darwin":
        text = _output_of("/bin/ps", "-o", "stat=,lstart=", "-p", str(pid))
        state, _, started = text.partition(" ")
        return None if not started or state.startswith("Z") else started.strip()
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            stat = file.read()
    except OSError:
        return None
    # The second field is the program's name in parentheses and may hold anything, so count from its end.
    fields = stat[stat.rindex(")") + 2 :].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else started


def signal_session_of(boot: str, leader: int, started: str, number: int) -> None:
    """Sends a signal to every process of a session, its leader included.

    Looks again until it finds nobody new, as a process may have forked just before its turn.  A shell
    with job control (`set -m`) may take a SIGSTOP of its job for the job's end, and go on when continued.

    Args:
        boot: the boot in which the leader started.
        leader: its pid.
        started: its raw start time.
        number: of the signal.
    """
    told: set[int] = set()
    for _ in range(SESSION_LOOKS):
        new = set(session_pids_of(boot, leader, started)) - told
        for pid in new:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        told |= new
        if not new:
            return


def session_pids_of(boot: str, leader: int, started: str) -> list[int]:
    """The processes of a session; see `signal_session_of`.

    None if the session's number has come to mean another process.  A process that made a session of its
    own has left this one and is not found.
    """
    if boot != boot_id() or start_time(leader) not in {None, started}:
        return []
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                found.append(pid)
    return found


def _pids() -> list[int]:
    if sys.platform == "darwin":
        return [int(word) for word in _output_of("/bin/ps", "-axo", "pid=").split()]
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _output_of(*command: str) -> str:
    # Imported here, as only macOS has to ask a program.
    import subprocess

    # `ps` writes times in the language and the time zone of its caller, and callers have to agree on them.
    environment = {"LC_ALL": "C", "TZ": "UTC"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.strip()

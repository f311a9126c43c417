"""The guard: decides which release runs, and starts it.  It is what the service manager names.

One file, standard library alone, syntax of Python 3.9; `python3 -I -S guard.py --root ROOT -- ARGUMENTS`.
It changes nothing but `agent/attempts`: while a release is on trial, each of its starts is written there,
durably and before the start, so that a trial that crashes, hangs or takes the host with it is over after
three.  Then the guard execs the release.  Whether a trial was good, the updater decides.

Where there is no service manager, `parent.py` stays and runs this file for each start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ATTEMPTS = 3
"""Charged starts of a trial in one boot."""
ATTEMPTS_IN_ALL = 9
"""Charged starts in all boots: a trial that takes the host down each time must end, too."""
SLEPT_NS = 5 * 10**9
READY_SECONDS = 15.0
BAD_CONFIG = 78

_FOLDER = re.compile(r"[0-9A-Za-z][0-9A-Za-z.-]*-[0-9a-f]{12}")


class InvalidError(Exception):
    """A version that may not be run, and why."""


class Disk:
    """The files, as the updater's port `FileSystem` has them; the crash suite puts its own in this place."""

    def read(self, path: Path) -> bytes:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()

    def append(self, path: Path, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            os.write(descriptor, data)
        finally:
            os.close(descriptor)

    def fsync(self, path: Path) -> None:
        self._flush(path, os.O_RDONLY)

    def fsync_directory(self, path: Path) -> None:
        self._flush(path, os.O_RDONLY | os.O_DIRECTORY)

    def _flush(self, path: Path, flags: int) -> None:
        descriptor = os.open(path, flags | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def names(self, path: Path) -> list[str]:
        try:
            return sorted(child.name for child in path.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, path: Path) -> int | None:
        try:
            found = os.lstat(path)
        except OSError:
            return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None


class Host:
    """Facts of this boot, and the one act: to become the release."""

    def boot_id(self) -> str:
        if sys.platform == "darwin":
            command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
            return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def pid(self) -> int:
        return os.getpid()

    def slept_ns(self) -> int:
        """How long this host has slept since its boot."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
        if hasattr(time, "CLOCK_UPTIME_RAW"):
            return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - time.clock_gettime_ns(time.CLOCK_UPTIME_RAW)
        return 0

    def become(
        self, program: str, arguments: list[str], environment: dict[str, str], alarm_seconds: float
    ) -> None:
        """Execs.  The alarm outlives the exec and ends a release that never becomes READY, by SIGALRM."""
        # A blocked or ignored SIGALRM would outlive the exec as well, and the alarm would do nothing.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        if alarm_seconds:
            signal.setitimer(signal.ITIMER_REAL, alarm_seconds)
        try:
            os.execve(program, [program, *arguments], {**os.environ, **environment})  # noqa: S606
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def unseal(data: bytes) -> Iterator[dict[str, Any]]:
    """The objects of all whole lines; whatever does not match its CRC is no line."""
    for line in data.split(b"\n"):
        try:
            value = json.loads(line)
            body = value["line"]
            text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
            if isinstance(body, dict) and zlib.crc32(text) == value["crc"]:
                yield body
        except (ValueError, KeyError, TypeError, RecursionError):
            continue


def seal(body: dict[str, Any]) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return b'\n{"crc":%d,"line":%s}\n' % (zlib.crc32(text), text)


class Guard:
    """The decision for one state root.

    Args:
        root: the state root.
        disk: as `Disk`.
        host: as `Host`.
    """

    def __init__(self, root: str, disk: Any, host: Any) -> None:
        self.root = Path(root)
        self.disk = disk
        self.host = host

    def start(self, arguments: list[str]) -> list[str]:
        """Becomes the first candidate that can be run.  Returns only if there is none.

        Returns:
            One line for each candidate, saying why it was not run.
        """
        problems = []
        try:
            state = self._state()
            candidates = self._candidates(state)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problems.append(f"state.json cannot be used: {error}")
            state, candidates = {}, self._fallbacks(self._rejected_by_journal(), None)
        for slot, on_trial in candidates:
            try:
                self._run(
                    slot, float(state.get("ready_seconds", READY_SECONDS)), arguments, on_trial=on_trial
                )
            except (InvalidError, OSError) as error:
                problems.append("{}: {}".format(slot.get("folder"), error))
        return problems or ["no version is installed below %s" % (self.root / "versions")]

    def _run(
        self, slot: dict[str, Any], ready_seconds: float, arguments: list[str], *, on_trial: bool
    ) -> None:
        manifest = self._check(slot, whole=on_trial)
        if on_trial:
            self._charge(slot["nonce"])
        alarm = ready_seconds if on_trial and manifest.get("guard_protocol", 0) >= 1 else 0
        program = str(self.root / "versions" / slot["folder"] / "bin" / "journeyman")
        environment = {
            "JOURNEYMAN_RELEASE_NONCE": slot["nonce"],
            "JOURNEYMAN_RELEASE_SHA": slot["sha256"],
        }
        self.host.become(program, arguments, environment, alarm)

    def _state(self) -> dict[str, Any]:
        value = json.loads(self.disk.read(self.root / "state.json"))
        if value["version"] != 1:
            raise ValueError("it has format {!r}".format(value["version"]))
        return {**value["status"], "ready_seconds": value["spec"].get("ready_seconds", READY_SECONDS)}

    def _candidates(self, state: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
        rejected = {item["sha256"] for item in state["rejected"]}
        found = []
        trial = state["trial"]
        if trial and trial["sha256"] not in rejected and self._may_try(trial["nonce"]):
            found.append((trial, True))
        found.extend((slot, False) for slot in (state["active"], state["previous"]) if slot)
        named = {slot["folder"] for slot, _ in found}
        last = trial["folder"] if trial else None
        rest = self._fallbacks(rejected, last)
        return found + [(slot, on_trial) for slot, on_trial in rest if slot["folder"] not in named]

    def _fallbacks(self, rejected: set[str], unproven: str | None) -> list[tuple[dict[str, Any], bool]]:
        """All versions: those that were committed come first, the latest before others; then by sequence."""
        order = self._committed_by_journal()
        found = []
        for folder in self.disk.names(self.root / "versions"):
            if folder == unproven or not _FOLDER.fullmatch(folder):
                continue
            try:
                sha = self._json(folder, "validity.json")["sha256"]
                sequence = int(self._json(folder, "manifest.json")["sequence"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if sha not in rejected:
                rank = (order.get(sha, -1), sequence)
                # Not an empty nonce: with one an agent takes itself for started by hand, and is silent.
                found.append((rank, {"folder": folder, "sha256": sha, "nonce": "fallback"}))
        return [(slot, False) for _, slot in sorted(found, key=lambda pair: pair[0], reverse=True)]

    def _committed_by_journal(self) -> dict[str, int]:
        committed = [str(line["sha"]) for line in self._journal() if line.get("step") == "commit"]
        return {sha: position for position, sha in enumerate(committed)}

    def _rejected_by_journal(self) -> set[str]:
        """Needed only while state.json cannot be read; a later `allow` of a person counts, too."""
        rejected: set[str] = set()
        for line in self._journal():
            if line.get("step") == "rollback" and line.get("detail", {}).get("rejects"):
                rejected.add(str(line["sha"]))
            elif line.get("step") == "allow":
                rejected.discard(str(line["detail"]["sha256"]))
        return rejected

    def _journal(self) -> Iterator[dict[str, Any]]:
        for name in ("journal.jsonl.1", "journal.jsonl"):
            yield from self._lines(name)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        try:
            return list(unseal(self.disk.read(self.root / name)))
        except OSError:
            return []

    def _json(self, folder: str, name: str) -> Any:
        return json.loads(self.disk.read(self.root / "versions" / folder / name))

    def _check(self, slot: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        """Raises InvalidError unless the version is the recorded one; returns its manifest."""
        if not _FOLDER.fullmatch(slot["folder"]):
            raise InvalidError("not the name of a version")
        tree = self.root / "versions" / slot["folder"]
        try:
            validity = self._json(slot["folder"], "validity.json")
            text = self.disk.read(tree / "manifest.json")
            if validity["sha256"] != slot["sha256"]:
                raise InvalidError("it is another artifact than the state names")
            if hashlib.sha256(text).hexdigest() != validity["manifest_sha256"]:
                raise InvalidError("its manifest is not the recorded one")
            manifest: dict[str, Any] = json.loads(text)
            for name, facts in manifest["files"].items():
                if self.disk.size(tree / name) != facts["size"]:
                    raise InvalidError(f"{name} is missing or has the wrong size")
                if whole and hashlib.sha256(self.disk.read(tree / name)).hexdigest() != facts["sha256"]:
                    raise InvalidError(f"{name} has the wrong content")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidError(f"it was never completed, or is damaged: {error}") from error
        return manifest

    def _may_try(self, nonce: str) -> bool:
        boot = self.host.boot_id()
        lines = [line for line in self._lines("agent/attempts") if line.get("nonce") == nonce]
        if self._refund(lines, boot, nonce):
            lines.append({"event": "refund", "boot": boot})
        here = [line for line in lines if line.get("boot") == boot]
        return _charged(here) < ATTEMPTS and _charged(lines) < ATTEMPTS_IN_ALL

    def _refund(self, lines: list[dict[str, Any]], boot: str, nonce: str) -> bool:
        """Gives the last start back if it ended by no fault of the release."""
        if not lines or lines[-1]["event"] != "start" or lines[-1]["boot"] != boot:
            return False
        if self._stopped_in_good_order(lines[-1]):
            why = "clean stop"
        elif self.host.slept_ns() - lines[-1].get("slept_ns", 0) > SLEPT_NS:
            why = "sleep"
        else:
            return False
        self._append({"event": "refund", "nonce": nonce, "boot": boot, "pid": lines[-1]["pid"], "why": why})
        return True

    def _stopped_in_good_order(self, line: dict[str, Any]) -> bool:
        try:
            report = json.loads(self.disk.read(self.root / "run" / "trial.json"))
            return (
                report["nonce"] == line["nonce"]
                and report["pid"] == line["pid"]
                and report["stopped"] is True
            )
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False

    def _charge(self, nonce: str) -> None:
        self._append(
            {
                "event": "start",
                "nonce": nonce,
                "boot": self.host.boot_id(),
                "pid": self.host.pid(),
                "slept_ns": self.host.slept_ns(),
            }
        )

    def _append(self, body: dict[str, Any]) -> None:
        path = self.root / "agent" / "attempts"
        self.disk.append(path, seal(body))
        self.disk.fsync(path)
        # Also when it was there: whoever made it may have been killed before this line.
        self.disk.fsync_directory(path.parent)


def _charged(lines: list[dict[str, Any]]) -> int:
    return sum({"start": 1, "refund": -1}.get(str(line.get("event")), 0) for line in lines)


def main(arguments: list[str]) -> int:
    """`--root ROOT -- ARGUMENTS OF THE RELEASE`."""
    if arguments[:1] != ["--root"] or arguments[2:3] != ["--"]:
        sys.stderr.write("usage: guard.py --root ROOT -- ARGUMENTS\n")
        return 64
    for problem in Guard(arguments[1], Disk(), Host()).start(arguments[3:]):
        sys.stderr.write(f"journeyman guard: {problem}\n")
    sys.stderr.write("journeyman guard: nothing can be run; install a release again\n")
    return BAD_CONFIG


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

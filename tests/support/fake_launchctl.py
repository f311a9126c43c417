"""launchctl's voice for `FakeLaunchd`: its verbs, codes and texts, lies included.

A real executable named `launchctl`, to be put on PATH, sends its arguments over a Unix socket and prints the
reply.  The texts are those of launchctl(1) as quoted in the reports named beside them; the shape of `print`
is that of macOS 13 (glowinthedark/pylaunchd#1, TOSS-Soft/toss-agent-runtime#38).
"""

from __future__ import annotations

import json
import plistlib
import shutil
import signal
import socketserver
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.support.fake_launchd import FakeLaunchd, Job

Reply = tuple[int, str, str]
OK: Reply = (0, "", "")

# launchctl error CODE; quoted in the reports of brew services, nix-installer#530, home-manager#4413.
TEXTS = {
    1: "Operation not permitted",
    3: "No such process",
    5: "Input/output error",
    36: "Operation now in progress",
    37: "Operation already in progress",
    112: "Could not find specified domain",
    113: "Could not find specified service",
    119: "Service is disabled",
    125: "Domain does not support specified action",
    134: "Service cannot load in requested session",
}
# What the verbs call themselves when they fail.
NAMES = {"bootstrap": "Bootstrap", "bootout": "Boot-out", "load": "Load", "unload": "Unload"}
RICHER = "Try running `launchctl bootstrap` as root for richer errors."

SCRIPT = """#!{python} -IS
import json, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect({path!r})
connection.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
code, output, complaint = json.loads(connection.makefile().read())
sys.stdout.write(output)
sys.stderr.write(complaint)
sys.exit(code)
"""


class FakeLaunchctl:
    """Serves the script `launchctl` in a folder of its own.

    Attributes:
        folder: to be put on PATH.
        calls: the arguments of each call, in order.
    """

    def __init__(self, launchd: FakeLaunchd) -> None:
        self._launchd = launchd
        self.calls: list[tuple[str, ...]] = []
        # The path of a socket may have some 100 bytes, which a test's own folder may exceed.
        self.folder = Path(tempfile.mkdtemp(prefix="launchctl-"))
        path = self.folder / "socket"
        self._server = _Server(str(path), _Handler)
        self._server.answer = self.answer
        script = self.folder / "launchctl"
        script.write_text(SCRIPT.format(python=sys.executable, path=str(path)))
        script.chmod(0o755)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._launchd.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        shutil.rmtree(self.folder)

    def answer(self, words: list[str]) -> Reply:
        """One call of launchctl."""
        self.calls.append(tuple(words))
        verb, arguments = words[0], words[1:]
        key = f"{verb} -k" if "-k" in arguments else verb
        faults = self._launchd.faults
        if key in faults.hanging:
            self._launchd.closed.wait()
        if faults.forced.get(key):
            return _failed(verb, faults.forced[key].pop(0))
        if key in faults.refused:
            return _failed(verb, 1)
        if key in faults.lies:
            return OK
        with self._launchd.lock:
            reply: Reply = getattr(self, "_" + verb.replace("-", "_"))(arguments)
        return reply

    def _bootstrap(self, arguments: list[str]) -> Reply:
        domain, path = arguments[0], Path(arguments[1])
        if domain not in self._launchd.domains:
            return _failed("bootstrap", 125)
        try:
            plist = plistlib.loads(path.read_bytes())
        except (OSError, ValueError, plistlib.InvalidFileException):
            return _failed("bootstrap", 5)
        session = {"Aqua": "gui", "Background": "user"}.get(plist.get("LimitLoadToSessionType"), domain)
        if not domain.startswith(session):
            return _failed("bootstrap", 134)
        log_folder = Path(plist.get("StandardErrorPath", "/dev/null")).parent
        if (domain, plist["Label"]) in self._launchd.jobs or not log_folder.is_dir():
            return _failed("bootstrap", 5)
        says = self._launchd.faults.disabled_says
        if self._launchd.is_disabled(domain, plist["Label"]) and says:
            return _failed("bootstrap", says)
        self._launchd.register(domain, path)
        return OK

    def _bootout(self, arguments: list[str]) -> Reply:
        job = self._job(arguments[0])
        if job is None:
            return _failed("bootout", 3)
        if job.is_leaving:
            return _failed("bootout", 36)
        self._launchd.remove(job)
        return OK

    def _kickstart(self, arguments: list[str]) -> Reply:
        job = self._job(arguments[-1])
        # A dying registration is no longer found by kickstart (headroomlabs-ai/headroom#1289).
        if job is None or job.is_leaving:
            return _not_found(arguments[-1])
        if "-k" in arguments:
            self._launchd.kill_and_restart(job)
        else:
            self._launchd.spawn(job)
        return OK

    def _kill(self, arguments: list[str]) -> Reply:
        job = self._job(arguments[1])
        if job is None:
            return _not_found(arguments[1])
        if job.process is None:
            return 3, "", "No process to signal.\n"
        job.process.send_signal(signal.Signals[arguments[0]])
        return OK

    def _print(self, arguments: list[str]) -> Reply:
        if arguments[0] in self._launchd.domains:
            return 0, self._printed_domain(arguments[0]), ""
        domain, _, label = arguments[0].rpartition("/")
        if domain not in self._launchd.domains:
            return 112, "", f"Bad request.\nCould not find domain for {domain}\n"
        job = self._launchd.jobs.get((domain, label))
        if job is None:
            return _not_found(arguments[0])
        return 0, printed(job, self._launchd.faults.unprinted), ""

    def _printed_domain(self, domain: str) -> str:
        """Its jobs with pid and last exit, among much else that is left out here."""
        jobs = (job for (place, _), job in self._launchd.jobs.items() if place == domain)
        lines = (f"\t\t{job.process.pid if job.process else 0:8}      -  \t{job.label}\n" for job in jobs)
        return f"{domain} = {{\n\tservices = {{\n{''.join(lines)}\t}}\n}}\n"

    def _list(self, arguments: list[str]) -> Reply:
        """Says 0 for a dying registration as well, with the old pid (NousResearch/hermes-agent#80416)."""
        for job in self._launchd.jobs.values():
            if job.label == arguments[0]:
                pid = f'\t"PID" = {job.process.pid};\n' if job.process else ""
                return 0, f'{{\n\t"Label" = "{job.label}";\n{pid}}};\n', ""
        return 113, "", f'Could not find service "{arguments[0]}" in domain for port\n'

    def _load(self, arguments: list[str]) -> Reply:
        """Says 0 and does nothing when the label is loaded (launchctl.c, "Already loaded")."""
        if self._launchd.faults.load_fails:
            return 0, "", f"Load failed: 5: {TEXTS[5]}\n{RICHER}\n"
        path = Path(arguments[-1])
        label = plistlib.loads(path.read_bytes())["Label"]
        if any(found == label for _, found in self._launchd.jobs):
            return 0, "", f"{label}: Already loaded\n"
        self._launchd.register("system", path)
        return OK

    def _unload(self, arguments: list[str]) -> Reply:
        """With -w it leaves an override that makes every later bootstrap fail (nexu-io/nexu#836)."""
        if self._launchd.faults.load_fails:
            return 5, "", f"Unload failed: 5: {TEXTS[5]}\n{RICHER}\n"
        label = plistlib.loads(Path(arguments[-1]).read_bytes())["Label"]
        for job in [job for job in self._launchd.jobs.values() if job.label == label]:
            if "-w" in arguments:
                self._launchd.override(job.domain, label, disabled=True)
            self._launchd.remove(job)
        return OK

    def _enable(self, arguments: list[str]) -> Reply:
        domain, _, label = arguments[0].rpartition("/")
        self._launchd.override(domain, label, disabled=False)
        return OK

    def _disable(self, arguments: list[str]) -> Reply:
        domain, _, label = arguments[0].rpartition("/")
        self._launchd.override(domain, label, disabled=True)
        return OK

    def _print_disabled(self, arguments: list[str]) -> Reply:
        """`=> disabled` since macOS 13 (usnistgov/macos_security#167)."""
        lines = [
            f'\t"{name.rpartition("/")[2]}" => {"disabled" if disabled else "enabled"}'
            for name, disabled in self._launchd.overrides().items()
            if name.rpartition("/")[0] == arguments[0]
        ]
        return 0, "\n".join(["disabled services = {", *lines, "}", ""]), ""

    def _job(self, target: str) -> Job | None:
        domain, _, label = target.rpartition("/")
        return self._launchd.jobs.get((domain, label))


def printed(job: Job, unprinted: set[str]) -> str:
    """The text of `launchctl print DOMAIN/LABEL`."""
    fields: dict[str, Any] = {
        "active count": int(job.process is not None),
        "path": job.path,
        "type": "LaunchDaemon" if job.domain == "system" else "LaunchAgent",
        "state": job.state,
        "program": job.plist["ProgramArguments"][0],
        "arguments": job.plist["ProgramArguments"],
        "default environment": {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        "environment": {**job.plist.get("EnvironmentVariables", {}), "XPC_SERVICE_NAME": job.label},
        "domain": job.domain,
        "minimum runtime": job.plist.get("ThrottleInterval", 10),
        "exit timeout": job.plist.get("ExitTimeOut", 20),
        "runs": job.runs,
        **({"pid": job.process.pid} if job.process is not None else {}),
        "last exit code": _exit_text(job.last_exit),
        # A table of its own with a state of its own, which is not the job's.
        "endpoints": {"dev.journeyman.port": {"state": "active", "active count": 1}},
        "pended nondemand spawn": job.pended or "false",
        "properties": "keepalive | runatload",
    }
    lines = [f"{job.domain}/{job.label} = {{"]
    for name, value in fields.items():
        if name not in unprinted:
            lines += _lines(name, value, "\t", " = ")
    return "\n".join([*lines, "}", ""])


def _lines(name: str, value: Any, indent: str, sign: str) -> list[str]:
    if isinstance(value, list):
        return [f"{indent}{name} = {{", *(f"{indent}\t{item}" for item in value), f"{indent}}}", ""]
    if isinstance(value, dict):
        inner = " => " if "environment" in name else " = "
        body = [line for key, item in value.items() for line in _lines(key, item, indent + "\t", inner)]
        return [f"{indent}{name} = {{", *body, f"{indent}}}", ""]
    return [f"{indent}{name}{sign}{value}"]


def _exit_text(code: int | None) -> str:
    if code is None:
        return "(never exited)"
    return f"{code}: EX_CONFIG" if code == 78 else str(code)


def _failed(verb: str, code: int) -> Reply:
    name = NAMES.get(verb)
    what = f"{name} failed" if name else f"Could not {verb} service"
    return code, "", f"{what}: {code}: {TEXTS[code]}\n"


def _not_found(target: str) -> Reply:
    domain, _, label = target.rpartition("/")
    return 113, "", f'Bad request.\nCould not find service "{label}" in domain for {domain}\n'


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    answer: Any = None


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        reply = server.answer(json.loads(self.rfile.readline()))
        try:
            self.wfile.write(json.dumps(reply).encode())
        except (BrokenPipeError, ConnectionResetError):
            # The caller was killed at its deadline.
            return

"""A state root with a real parent, guard and agent: tiny releases that speak the trial handshake."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import journeyman_updater
from journeyman_updater import guard, parent
from journeyman_updater.adapters.service.none import ParentServiceManager
from journeyman_updater.adapters.system_clock import SystemClock
from journeyman_updater.contract import ProcessIdentity, StateRoot, TrialReport, identity_of
from journeyman_updater.core.launcher import render_launcher
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME, Validity
from journeyman_updater.model.release import Sha256, Slot, UpdateRequest, VersionId
from journeyman_updater.model.state import Spec, StateDocument, Status
from journeyman_updater.model.unit import Unit
from journeyman_updater.run import Updater
from journeyman_updater.settings import Settings
from tests.simulator.releases import SmallRelease
from tests.support.waiting import eventually

READY_SECONDS = 2.0
UPDATER_PACKAGES = Path(journeyman_updater.__file__).parents[1]
SETTINGS = Settings(
    start_seconds=20,
    ready_margin_seconds=1,
    beat_seconds=2,
    accept_seconds=5,
    soak_seconds=0.5,
    patience_seconds=1,
    drain_seconds=2,
    stop_seconds=5,
    proof_seconds=20,
    poll_seconds=0.05,
    allow_unsigned=True,
)

# Takes the agent's lock, so that a second agent beside it would be seen.
AGENT = """#!{python} -IS
import fcntl, json, os, signal, socket, sys, time
VERSION, BEHAVIOUR = {version!r}, {behaviour!r}
if sys.argv[1:2] == ["version"]:
    print(json.dumps({{"product": "journeyman", "version": VERSION}}))
    sys.exit()
if sys.argv[1:2] == ["update"]:
    with open(os.path.join(os.path.dirname(__file__), "..", "lib", "unit.json")) as file:
        print(file.read())
    sys.exit()
run = os.path.join(sys.argv[-1], "run")
log = os.open(os.path.join(run, "starts"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
lock = os.open(os.path.join(run, "agent.lock"), os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    os.write(log, b"SECOND AGENT\\n")
    sys.exit(73)
os.write(log, VERSION.encode() + b"\\n")
if BEHAVIOUR == "crash":
    sys.exit(1)
if os.path.exists(os.path.join(run, "bad-config")):
    sys.exit(78)
if BEHAVIOUR == "hang":
    time.sleep(600)
with open("/proc/self/stat") as file:
    start = file.read().rpartition(")")[2].split()[19]
beats, stopped = 0, False

def report():
    value = {{
        "format": 1, "nonce": os.environ["JOURNEYMAN_RELEASE_NONCE"], "pid": os.getpid(), "start": start,
        "sha": os.environ["JOURNEYMAN_RELEASE_SHA"], "loops_ticking": True, "beats_attempted": beats,
        "beats_accepted": 0 if BEHAVIOUR == "outage" else beats,
        "beat_error": "Unreachable" if BEHAVIOUR == "outage" else "", "busy": 0, "stopped": stopped,
    }}
    temporary = os.path.join(run, ".trial.json.tmp")
    with open(temporary, "w") as file:
        json.dump(value, file)
    os.replace(temporary, os.path.join(run, "trial.json"))

def notify(message):
    if "NOTIFY_SOCKET" in os.environ:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message, os.environ["NOTIFY_SOCKET"])

def stop(*_):
    global stopped
    if os.path.exists(os.path.join(run, "stubborn")):
        return
    with open(os.path.join(run, "stops"), "a") as file:
        file.write(VERSION + "\\n")
    stopped = True
    report()
    sys.exit(75)

signal.signal(signal.SIGTERM, stop)
signal.setitimer(signal.ITIMER_REAL, 0)
report()
notify(b"READY=1")
began = time.monotonic()
while True:
    time.sleep(0.1)
    notify(b"WATCHDOG=1")
    while os.path.exists(os.path.join(run, "hang")):
        time.sleep(0.1)
    order = os.path.join(run, "order.json")
    if os.path.exists(order):
        with open(order) as file:
            argv, environment = json.load(file)
        os.unlink(order)
        os.posix_spawn(argv[0], argv, environment)
    beats += BEHAVIOUR not in ("mute", "late")
    # Long enough to be seen READY by a manager that has to be asked by a program.
    if BEHAVIOUR == "late" and time.monotonic() > began + 0.7:
        sys.exit(1)
    report()
"""


def dummy(version: str, behaviour: str = "good", unit: Unit | None = None) -> SmallRelease:
    """A release that behaves so, and that brings a unit if one is given."""
    program = AGENT.format(python=sys.executable, version=version, behaviour=behaviour)
    if unit is None:
        return SmallRelease(version=version, program=program)
    more = (("lib/unit.json", unit.to_json()),)
    return SmallRelease(version=version, program=program, unit_protocol=1, more=more)


class KeptRoot:
    """A state root on which 0.1.0 is active; who keeps the agent is up to the subclass.

    Args:
        folder: for everything.
        root: the state root, if it lies elsewhere.
    """

    settings = SETTINGS

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.root = StateRoot(root or folder / "state root")
        for path in (
            self.root.path,
            self.root.versions,
            self.root.downloads,
            self.root.run,
            self.root.agent,
        ):
            path.mkdir(exist_ok=True)
        self.slot = self._lay_down(self.first_release())
        status = Status(active=self.slot)
        document = StateDocument(Spec(ready_seconds=READY_SECONDS), status)
        self.root.state_file.write_bytes(document.to_json())

    def first_release(self) -> SmallRelease:
        """What is active from the start."""
        return dummy("0.1.0")

    def launcher(self, name: str, module: ModuleType) -> str:
        """Writes the launcher of the guard or of the parent."""
        path = self.folder / f"{name} launcher"
        path.write_text(render_launcher(str(module.__file__), recorded_python=sys.executable))
        path.chmod(0o755)
        return str(path)

    def order(self, *argv: str) -> None:
        """Lets the agent start a program, as its child and without waiting for it."""
        temporary = self.root.run / "order.tmp"
        environment = {"PATH": os.defpath, "PYTHONPATH": str(UPDATER_PACKAGES)}
        temporary.write_text(json.dumps([argv, environment]))
        temporary.replace(self.root.run / "order.json")

    def updater(self) -> Updater:
        return Updater(self.root, self.settings)

    def request(self, release: SmallRelease) -> UpdateRequest:
        """Builds a release and asks for it."""
        archive = release.build(self.folder)
        sha256 = Sha256(hashlib.sha256(archive.read_bytes()).hexdigest())
        return UpdateRequest(VersionId(release.version), archive.as_uri(), sha256)

    def starts(self) -> list[str]:
        """What was started, in order."""
        return (self.root.run / "starts").read_text().split("\n")[:-1]

    def stops(self) -> list[str]:
        """What was stopped in good order, in order."""
        path = self.root.run / "stops"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def reported_pid(self) -> int:
        """The process of the agent, by its own report."""
        return TrialReport.from_json(self.root.trial_file.read_bytes()).pid

    def reported(self) -> str | None:
        """The version of the agent that runs, by its own report and the kernel's word."""
        try:
            report = TrialReport.from_json(self.root.trial_file.read_bytes())
        except (OSError, ValueError):
            return None
        running = identity_of(report.pid)
        if running is None or running.start_time != report.start:
            return None
        names = [path.name for path in self.root.versions.iterdir() if path.name.endswith(report.sha[:12])]
        return names[0].rpartition("-")[0] if names and not report.stopped else None

    def _versions(self) -> set[str]:
        return {path.name.rpartition("-")[0] for path in self.root.versions.iterdir()}

    def _lay_down(self, release: SmallRelease) -> Slot:
        archive = release.build(self.folder)
        sha256 = Sha256(hashlib.sha256(archive.read_bytes()).hexdigest())
        slot = Slot(VersionId(release.version), sha256, "first")
        tree = self.root.versions / slot.folder
        tree.mkdir()
        release.lay_out(tree)
        manifest = hashlib.sha256((tree / MANIFEST_NAME).read_bytes()).hexdigest()
        (tree / VALIDITY_NAME).write_bytes(Validity(sha256, Sha256(manifest)).to_json())
        return slot


class KeptHost(KeptRoot):
    """A host without a service manager."""

    parent: subprocess.Popen[bytes] | None = None

    def start(self, *, expect: str | None = "0.1.0") -> None:
        """Starts the parent, and returns once that release has reported, or any if it is None."""
        root = str(self.root.path)
        tools = ["--root", root, "--guard", self.launcher("guard", guard)]
        command = [self.launcher("parent", parent), *tools, "--", "run", root]
        with (self.folder / "log").open("ab") as log:
            self.parent = subprocess.Popen(command, stdout=log, stderr=log)
        # One that is stopped before it has taken its signals in hand would leave the agent behind.
        keeper = self.parent.pid
        eventually(lambda: self._keeper_pid() == keeper, within_seconds=20)
        eventually(lambda: self.reported() in ({expect} if expect else self._versions()), within_seconds=20)

    def stop(self) -> None:
        """Stops the parent and the agent."""
        if self.parent is not None:
            self.parent.terminate()
            self.parent.wait(timeout=20)

    def kill(self) -> None:
        """As if the power failed for its processes: the parent first, so that it starts nothing more."""
        if self.parent is not None:
            self.parent.kill()
            self.parent.wait()
            self.parent = None
        # From /proc, as no file of a root whose disk has failed can be read.
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        eventually(lambda: not self._pids())

    def agent(self) -> ProcessIdentity | None:
        """The agent, as the updater finds it."""
        return ParentServiceManager(self.root.guard_file, SystemClock()).running()

    def _keeper_pid(self) -> int | None:
        """The parent that says of itself that it keeps the agent."""
        try:
            return int(json.loads(self.root.guard_file.read_bytes())["parent"])
        except (OSError, ValueError):
            return None

    def agent_pid(self) -> int:
        """The process that the parent keeps."""
        return int(json.loads(self.root.guard_file.read_bytes())["child"])

    def _pids(self) -> list[int]:
        """Processes that were started for this root; zombies have no command line."""
        found, here = [], str(self.root.path).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if here in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

"""A host in a bottle: guard, agent, service manager and updater of one state root on a `CrashDisk`.

The guard and the updater are the real ones, with the real unpacker; the clock, the agent, the way to the
artifact and what restarts the guard are simulated.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from journeyman_updater.adapters.host_facts import this_host
from journeyman_updater.adapters.unpack import TarUnpacker
from journeyman_updater.contract import ProcessIdentity, StateRoot, TrialReport
from journeyman_updater.core.health import HealthLimits
from journeyman_updater.core.launcher import copy_named_in
from journeyman_updater.guard import Guard
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.manifest import MANIFEST_NAME, VALIDITY_NAME, Validity
from journeyman_updater.model.release import Sha256, UpdateRequest, VersionId
from journeyman_updater.model.unit import Unit
from journeyman_updater.ports import Progress, RestartToken
from journeyman_updater.steps.base import Limits, Records, Tools
from journeyman_updater.steps.renew import Myself, renew
from journeyman_updater.transaction import Outcome, Transaction
from tests.crash.disk import CrashDisk
from tests.crash.releases import BROKEN_UNIT, Agent, Release

LIMITS = Limits(
    health=HealthLimits(ready=5, margin=2, start=6, beat=4, accept=6, soak=3, patience=12),
    drain=5,
    proof=10,
    poll=1,
)
START = datetime(2026, 6, 1, tzinfo=UTC)
_CHUNK_BYTES = 200


class BecameError(BaseException):
    """The guard has execed: it is no more."""


class World:
    """One boot after the other of one host.

    Args:
        disk: the state root.
        releases: all that can be fetched or run here.
        boot: the number of this boot.
        limits: the deadlines of the updater.
        rotate_bytes: at which size the journal is rotated.
    """

    def __init__(
        self,
        disk: CrashDisk,
        releases: tuple[Release, ...],
        boot: int = 1,
        limits: Limits = LIMITS,
        rotate_bytes: int = 1024**2,
    ) -> None:
        self.disk = disk
        self.limits = limits
        self.rotate_bytes = rotate_bytes
        self.root = StateRoot(disk.root)
        self.releases = releases
        self.boot = boot
        self.seconds = 100.0
        self.agent: Agent | None = None
        self.loaded_unit: bytes | None = None
        self.restart_at: float | None = None
        self.is_plane_up = True
        self.wall_offset = timedelta()
        self.slept = 0
        self.bytes_fetched = 0
        self.starts: list[str] = []
        self.tried: set[int] = set()
        self.installed: tuple[Release, ...] = ()
        self._guard_pid = 0
        self._pids = itertools.count(boot * 1000)
        self._nonces = itertools.count(1)

    # The Clock port, and the guard's Host.

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds) + self.wall_offset

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)

    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def wait(self, seconds: float) -> None:
        end = self.seconds + seconds
        while self.seconds < end:
            self.seconds = min(end, self.seconds + 0.25)
            self._live()

    def pid(self) -> int:
        return next(self._pids)

    def slept_ns(self) -> int:
        return self.slept

    def become(self, program: str, arguments: list[str], environment: dict[str, str], alarm: float) -> None:
        assert arguments == ["run"]
        release = next(item for item in self.releases if item.sha256 == environment["JOURNEYMAN_RELEASE_SHA"])
        assert Path(program) == self.disk.root / "versions" / release.slot.folder / "bin" / "journeyman"
        self.disk.point("spawn agent")
        assert self.agent is None, "a second agent was started beside the first"
        assert_whole(self.disk, Path(program).parent.parent, release.sha256)
        # The guard took its pid for the attempt's line, and exec keeps it.
        pid = self._guard_pid
        identity = ProcessIdentity(self.boot_id(), pid, f"start-{pid}")
        nonce = environment["JOURNEYMAN_RELEASE_NONCE"]
        self.agent = Agent(identity, release, nonce, self.seconds, alarm, self.loaded_unit or b"")
        self.starts.append(release.version)
        self.tried |= {item.pid for item in self.tools().records.attempts()} & {pid}
        raise BecameError

    # The service manager.

    def running(self) -> ProcessIdentity | None:
        return self.agent.identity if self.agent else None

    def token(self) -> RestartToken:
        return RestartToken(self.running())

    def started_since(self, token: RestartToken) -> bool:
        return self.agent is not None and self.agent.identity != token.before

    def restart(self) -> None:
        self.disk.point("signal agent")
        self.agent = None
        self.loaded_unit = None
        self.start()

    def start(self) -> None:
        """The service manager starts the guard, by the unit that it has read at its boot or at a restart."""
        self.restart_at = None
        if self.loaded_unit is None:
            is_there = self.disk.size(self.unit_file) is not None
            self.loaded_unit = self.disk.read(self.unit_file) if is_there else b""
        if BROKEN_UNIT in self.loaded_unit:
            self.restart_at = self.seconds + 1
            return
        self._guard_pid = next(self._pids)
        with contextlib.suppress(BecameError):
            Guard(str(self.disk.root), self.disk, _GuardHost(self, self._guard_pid)).start(["run"])
            # Nothing could be run; a manager tries again.
            self.restart_at = self.seconds + 1

    def stop_in_good_order(self) -> None:
        """The agent is asked to stop and does, as for a reboot by a person."""
        assert self.agent is not None
        self._report(self.agent, stopped=True)
        self.agent = None

    def _live(self) -> None:
        if self.agent is not None:
            self._act(self.agent)
        if self.agent is None and self.restart_at is None:
            self.restart_at = self.seconds + 1
        if self.restart_at is not None and self.seconds >= self.restart_at:
            self.start()

    def _act(self, agent: Agent) -> None:
        age = self.seconds - agent.started
        behaviour = agent.release.behaviour
        is_over = {"crash": age > 0.3, "late": age > 2, "hang": bool(agent.alarm) and age > agent.alarm}
        if is_over.get(behaviour, False):
            self.agent = None
            return
        if behaviour in {"good", "late", "mute", "stuck"} and age >= 0.5:
            agent.beats += behaviour == "good" or (behaviour == "stuck" and age < 5)
            self._report(agent)

    def _report(self, agent: Agent, *, stopped: bool = False) -> None:
        accepted = agent.beats if self.is_plane_up else 0
        error = "" if accepted or not agent.beats else "Unreachable"
        identity = agent.identity
        report = TrialReport(
            agent.nonce,
            identity.pid,
            identity.start_time,
            agent.release.sha256,
            beats_attempted=agent.beats,
            beats_accepted=accepted,
            beat_error=error,
            stopped=stopped,
        )
        with self.quietly():
            for folder in (self.root.run, self.root.agent):
                if not self.disk.is_directory(folder):
                    self.disk.mkdir(folder)
            self.disk.write(self.root.trial_file, report.to_json())

    @contextlib.contextmanager
    def quietly(self) -> Iterator[None]:
        """What is written here is no point of the update: it is the agent's own file."""
        count, cut_at = len(self.disk.points), self.disk.cut_at
        self.disk.cut_at = None
        try:
            yield
        finally:
            del self.disk.points[count:]
            self.disk.cut_at = cut_at

    # The other ports.

    @property
    def mode(self) -> int:
        return 0o644

    @property
    def unit_file(self) -> Path:
        """On a real host it lies elsewhere; the power fails on this disk alone."""
        return self.root.path / "service" / "agent.unit"

    def paths(self) -> dict[str, Path]:
        return {self.unit_file.name: self.unit_file}

    def render(self, tree: Path) -> Unit:
        # A spawn, and no promise: it leaves nothing behind, and nobody outside sees it.
        self.disk.point("question release")
        release = next(item for item in self.releases if item.slot.folder == tree.name)
        return Unit({self.unit_file.name: release.unit, "of a later updater": b"another file"})

    def check(self, unit: Unit) -> None:
        assert set(unit.files) == {self.unit_file.name}

    def is_same(self, one: bytes, other: bytes) -> bool:
        return one == other

    def is_reachable(self) -> bool:
        return self.is_plane_up

    def wanted(self) -> UpdateRequest | None:
        return None

    def in_use(self) -> frozenset[str] | None:
        return frozenset()

    def promise(self, signature: bytes, keys: tuple[str, ...], now: datetime) -> ReleaseBinding:
        release = next(item for item in self.releases if item.sha256.encode() == signature)
        host = this_host()
        return ReleaseBinding(
            "journeyman",
            host.os,
            host.arch,
            VersionId(release.version),
            release.sequence,
            len(release.archive),
            release.sha256,
            START + timedelta(days=9999),
        )

    def verify(
        self, artifact: Path, signature: bytes, keys: tuple[str, ...], now: datetime
    ) -> ReleaseBinding:
        binding = self.promise(signature, keys, now)
        assert hashlib.sha256(self.disk.read(artifact)).hexdigest() == binding.sha256
        return binding

    def fetch_bytes(self, url: str, *, limit_bytes: int) -> bytes:
        return Path(url).name.removesuffix(".minisig").encode()

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        expected_size: int | None,
        sha256: Sha256,
        progress: Progress,
    ) -> None:
        """Writes in the order in which the real fetcher does."""
        archive = next(item.archive for item in self.releases if item.sha256 == sha256)
        if self.disk.size(destination) is not None:
            if self.disk.read(destination) == archive:
                self.disk.fsync_directory(destination.parent)
                return
            self.disk.unlink(destination)
        part = destination.with_name(destination.name + ".part")
        here = self.disk.size(part) or 0
        if self.disk.names(part.parent).count(part.name) and self.disk.read(part) != archive[:here]:
            self.disk.unlink(part)
            here = 0
        for offset in range(here, len(archive), _CHUNK_BYTES):
            piece = archive[offset : offset + _CHUNK_BYTES]
            self.bytes_fetched += len(piece)
            self.disk.append(part, piece)
        self.disk.fsync(part)
        self.disk.rename(part, destination)
        self.disk.fsync_directory(destination.parent)

    def run(self, tree: Path, *, product: str, version: VersionId) -> None:
        self.disk.point("spawn exec check")

    def check_room(self, folder: Path, size_bytes: int) -> None:
        assert self.disk.is_directory(folder)

    # The updater.

    def tools(self) -> Tools:
        return Tools(
            root=self.root,
            files=self.disk,
            clock=self,
            records=Records(self.root, self.disk, self, rotate_bytes=self.rotate_bytes),
            fetcher=self,
            verifier=self,
            unpacker=TarUnpacker(self.disk),
            exec_check=self,
            manager=self,
            unit=self,
            plane=self,
            leases=self,
            limits=self.limits,
            host=this_host(),
            check_room=self.check_room,
            allow_unsigned=False,
            new_nonce=lambda: f"nonce-{self.boot}-{next(self._nonces)}",
            progress=lambda here, total: None,
        )

    def update(self, request: UpdateRequest) -> Outcome:
        """One run of the updater."""
        me = Myself(self.copy_in_use(), "/usr/bin/python3")
        tools = self.tools()
        transaction = Transaction(tools)
        transaction.recover()
        outcome = transaction.apply(request)
        self.disk.told()
        renew(tools, me, _SelfCheck(self), _NoLocks())
        return outcome

    def copy_in_use(self) -> str | None:
        """The copy of the updater that its launcher starts."""
        return copy_named_in(self.disk.read(self.root.updater_launcher).decode())

    def reboot(self, disk: CrashDisk) -> World:
        """The next boot of this host, with what the platter held; the guard has been started."""
        world = World(disk, self.releases, self.boot + 1, self.limits, self.rotate_bytes)
        world.is_plane_up = self.is_plane_up
        world.wall_offset = self.wall_offset
        world.start()
        return world


@dataclass(frozen=True)
class _GuardHost:
    """The guard's view of the world: its own pid is fixed from its start on."""

    world: World
    own_pid: int

    def boot_id(self) -> str:
        return self.world.boot_id()

    def pid(self) -> int:
        return self.own_pid

    def slept_ns(self) -> int:
        return self.world.slept_ns()

    def become(self, program: str, arguments: list[str], environment: dict[str, str], alarm: float) -> None:
        self.world.become(program, arguments, environment, alarm)


@dataclass(frozen=True)
class _SelfCheck:
    """Runs the programs of a new copy, as far as they exist in here."""

    world: World

    def guard(self, launcher: Path, root: Path, *, product: str, version: VersionId) -> None:
        self.world.disk.point("spawn guard check")
        self._assert_whole(launcher)
        active = self.world.tools().records.load().status.active
        assert active is not None
        assert active.version.same_as(version)

    def starts(self, command: Sequence[str | Path]) -> None:
        self.world.disk.point("spawn parent check")

    def updater(self, launcher: Path, root: Path) -> None:
        self.world.disk.point("spawn updater check")
        self._assert_whole(launcher)
        transaction = Transaction(self.world.tools())
        transaction.recover()
        transaction.tidy()

    def _assert_whole(self, launcher: Path) -> None:
        disk = self.world.disk
        copy = self.world.root.updater / str(copy_named_in(disk.read(launcher).decode()))
        assert_whole(disk, copy, Validity.from_json(disk.read(copy / VALIDITY_NAME)).sha256)


class _NoLocks:
    """Nobody else updates in here."""

    def hold(self, path: Path) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


def assert_whole(disk: CrashDisk, tree: Path, sha256: str) -> None:
    """I1: what is executed is recorded as valid, and is whole."""
    validity = Validity.from_json(disk.read(tree / VALIDITY_NAME))
    assert validity.sha256 == sha256
    assert hashlib.sha256(disk.read(tree / MANIFEST_NAME)).hexdigest() == validity.manifest_sha256

"""What the updater needs of the world.  The docstrings are contracts; ports raise `UpdaterError` and its kin.

Everything durable goes through `FileSystem`, so that the crash suite can cut the power at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from journeyman_updater.contract import ProcessIdentity
from journeyman_updater.model.binding import ReleaseBinding
from journeyman_updater.model.release import Sha256, UpdateRequest, VersionId
from journeyman_updater.model.unit import Unit

Progress = Callable[[int, int | None], None]
"""Called with the bytes that are here and the bytes expected, None when nobody said."""


class Clock(Protocol):
    """Time, as an argument of all decisions."""

    def now(self) -> datetime:
        """The wall clock, in UTC; good for expiry dates and for people, never for a deadline."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds since the boot, without the time asleep."""
        ...

    def boot_id(self) -> str:
        """An identifier of this boot of the host."""
        ...

    def wait(self, seconds: float) -> None:
        """Returns after that time."""
        ...


class FileSystem(Protocol):
    """Files, one call for each step that a power cut can fall between.

    Nothing is durable before `fsync` (content) and `fsync_directory` (names).  No call follows a symbolic
    link in the last part of its path.  Errors are OSError.
    """

    def read(self, path: Path, *, limit_bytes: int | None = None) -> bytes:
        """The whole content of a regular file.

        Args:
            path: the file.
            limit_bytes: for a file that somebody else writes: a larger one is refused.

        Raises:
            OSError: FileNotFoundError; or it is a link, a folder or a device, or too large.  It never waits.
        """
        ...

    def write(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        """Makes a file that has just this content, in the place of one that is there."""
        ...

    def append(self, path: Path, data: bytes, *, mode: int = 0o600) -> None:
        """Adds to the end of a file, which is created with that mode if it is not there."""
        ...

    def fsync(self, path: Path) -> None:
        """Makes the content of a file durable."""
        ...

    def fsync_directory(self, path: Path) -> None:
        """Makes creations, renames and unlinks in a directory durable."""
        ...

    def sync_tree(self, path: Path) -> None:
        """Makes all content and all names in a directory and below it durable, but for its own name."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replaces `target` by `source` in one step; both lie in one directory."""
        ...

    def unlink(self, path: Path) -> None:
        """Removes a file or a link.  Raises FileNotFoundError."""
        ...

    def mkdir(self, path: Path, *, mode: int = 0o755) -> None:
        """Creates a directory.  Raises FileExistsError."""
        ...

    def rmdir(self, path: Path) -> None:
        """Removes an empty directory."""
        ...

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; an empty list if there is no such directory."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Whether it is a directory and not a link to one."""
        ...

    def size(self, path: Path) -> int | None:
        """The size of a regular file in bytes, or None if there is none."""
        ...


class Locks(Protocol):
    """The one lock of all mutations."""

    def hold(self, path: Path) -> AbstractContextManager[None]:
        """Holds an exclusive flock.  Raises UpdaterError at once if another process holds it."""
        ...


class Fetcher(Protocol):
    """Brings artifacts over the network."""

    def fetch(
        self,
        url: str,
        destination: Path,
        *,
        expected_size: int | None,
        sha256: Sha256,
        progress: Progress,
    ) -> None:
        """Brings the artifact to `destination`; its directory exists.

        Idempotent: a complete file with the right digest costs no request, a partial one at
        `<destination>.part` is resumed, and a wrong one is deleted.  When it returns, the file is whole,
        verified and durable.
        """
        ...

    def fetch_bytes(self, url: str, *, limit_bytes: int) -> bytes:
        """Brings a small file, such as a signature, into memory, by the same rules."""
        ...


class SignatureVerifier(Protocol):
    """Says who made an artifact."""

    def promise(self, signature: bytes, keys: tuple[str, ...], now: datetime) -> ReleaseBinding:
        """What a signature promises, proven to come from one of the keys, before the artifact is here."""
        ...

    def verify(
        self, artifact: Path, signature: bytes, keys: tuple[str, ...], now: datetime
    ) -> ReleaseBinding:
        """Verifies a minisign signature over the artifact, with any one of the pinned keys.

        Expiry is judged at `now`.  What the binding says is compared with the request by the caller.
        """
        ...


@dataclass(frozen=True)
class UnpackLimits:
    """Caps on what an archive may grow to.

    Attributes:
        total_bytes: of all members together.
        members: how many.
    """

    total_bytes: int = 1024**3
    members: int = 50_000


class Unpacker(Protocol):
    """Turns an artifact into a tree."""

    def unpack(self, archive: Path, destination: Path, limits: UnpackLimits) -> dict[str, Sha256]:
        """Unpacks a release archive into `destination`, an empty directory, through `FileSystem`.

        Returns the digest of each file by its path below it, taken from the bytes that were written.

        When it returns, each file and each directory below and including `destination` is durable.  Modes
        are set here: 0755 for directories and for members with any execute bit, 0644 for others.
        """
        ...


class SelfCheck(Protocol):
    """Runs the programs of a new copy of the updater while nothing rests on them."""

    def guard(self, launcher: Path, root: Path, *, product: str, version: VersionId) -> None:
        """Lets the guard behind `launcher` start the active release, which has to say who it is.

        Only while no trial is open, as the start of a trial is counted.
        """
        ...

    def starts(self, command: Sequence[str | Path]) -> None:
        """Asks a program for its `--help`, which shows that it and all that it imports can be loaded."""
        ...

    def updater(self, launcher: Path, root: Path) -> None:
        """Lets the updater behind `launcher` do a whole run without a request; the lock has to be free.

        Raises ReleaseError if it does not, and HostError if it could not for reasons of the host.
        """
        ...


class ExecCheck(Protocol):
    """Asks a staged release who it is."""

    def run(self, tree: Path, *, product: str, version: VersionId) -> None:
        """Runs the entry point in place with `--version --json`, as the service's user, with a deadline."""
        ...


@dataclass(frozen=True)
class RestartToken:
    """What is known before a restart, to be proven different after it.

    Attributes:
        before: the agent that ran, or None.
        sign: the manager's own sign of a start (InvocationID, runs, TAI64N), or an empty string.
    """

    before: ProcessIdentity | None
    sign: str = ""


class ServiceManager(Protocol):
    """Whatever starts the guard.  Exit codes of its tools prove nothing: `running` does."""

    def running(self) -> ProcessIdentity | None:
        """The agent that this manager runs now, or None."""
        ...

    def token(self) -> RestartToken:
        """To be taken, and journalled, before `restart`."""
        ...

    def restart(self) -> None:
        """Asks for a stop in good order and a new start through the guard; kills only after its stop timeout.

        Starts the service if it does not run.  Raises UpdaterError if the manager refuses.
        """
        ...

    def started_since(self, token: RestartToken) -> bool:
        """Whether the manager itself shows a new start; False when in doubt."""
        ...


class AgentUnit(Protocol):
    """The files by which the service manager starts the agent.  A release may bring its own."""

    @property
    def mode(self) -> int:
        """Of each file."""
        ...

    def paths(self) -> dict[str, Path]:
        """Where they lie, by name; empty where there is no service manager."""
        ...

    def render(self, tree: Path) -> Unit:
        """Asks a staged release for its own; needs no agent.  Raises UpdaterError."""
        ...

    def check(self, unit: Unit) -> None:
        """Raises UpdaterError for files that the service manager would refuse or ignore; changes nothing."""
        ...

    def is_same(self, one: bytes, other: bytes) -> bool:
        """Whether two contents of a file start the agent alike."""
        ...


class ControlPlane(Protocol):
    """The updater's own view of the control plane; it only ever reads."""

    def is_reachable(self) -> bool:
        """Whether the control plane answers this host at all, to tell a bad release from an outage."""
        ...

    def wanted(self) -> UpdateRequest | None:
        """The updateRequest of this host's own FleetNode, or None.

        Raises UpdaterError if it cannot be asked, or if the request is malformed.
        """
        ...


class Leases(Protocol):
    """Who still runs from which version."""

    def in_use(self) -> frozenset[str] | None:
        """Names of folders below `versions/` from which any process runs; None if that cannot be told."""
        ...


@dataclass(frozen=True)
class CommandResult:
    """How a program ended.

    Attributes:
        code: its exit code; 127 if it is not installed, 124 if it did not end in time.
        stdout: what it printed.
        stderr: what it complained about.
    """

    code: int
    stdout: str = ""
    stderr: str = ""


class CommandRunner(Protocol):
    """The tools of a service manager, as programs."""

    def run(self, *command: str, timeout_seconds: float) -> CommandResult:
        """Runs a program to its end.  Never raises for what the program does; it is killed at the timeout."""
        ...

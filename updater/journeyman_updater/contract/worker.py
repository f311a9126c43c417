"""The files in a worker's folder as objects, by which shim and agent speak across the agent's restarts.

`worker_files.py` says which files there are.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

from journeyman_updater.contract import worker_files
from journeyman_updater.contract.process import ProcessIdentity


@dataclass(frozen=True)
class WorkerFolder:
    """The names of the files in a worker's folder."""

    path: Path

    @property
    def spec(self) -> Path:
        return self.path / worker_files.SPEC

    @property
    def record(self) -> Path:
        return self.path / worker_files.RECORD

    @property
    def exit(self) -> Path:
        return self.path / worker_files.EXIT

    @property
    def stdout(self) -> Path:
        return self.path / worker_files.STDOUT

    @property
    def stderr(self) -> Path:
        return self.path / worker_files.STDERR

    @property
    def files(self) -> Path:
        return self.path / worker_files.FILES


@dataclass(frozen=True)
class WorkerSpec:
    """What to run.

    Attributes:
        kind: `model-server`, `freeform`, and what later kinds there are; free text to the shim.
        argv: the program and its arguments; never a secret, as any user of the host can read them.
        env: the whole environment of the worker; nothing is inherited.
        cwd: its working directory, or an empty string for the worker's `files/` folder.
        log_limit_bytes: how much of each of stdout and stderr is kept.
        labels: facts that the agent wants back at adoption (task, claim, model, port).
        copies: two fifos that get a copy of stdout and stderr, for whoever waits for the worker; it is not
            started if nobody reads them, and waits for a slow reader as for any pipe.  Empty for none.
        private: whether this spec must not stay on disk, as the environment may hold a caller's secrets;
            the shim then deletes it once it has been read.
    """

    kind: str
    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    log_limit_bytes: int = 4 * 1024 * 1024
    labels: dict[str, str] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    private: bool = False

    def digest(self) -> str:
        """SHA-256 over the canonical JSON form, in hex; equal specs have equal digests."""
        return hashlib.sha256(worker_files.canonical(asdict(self))).hexdigest()

    def to_json(self) -> bytes:
        """The file's content; the digest goes with it, so that no shim has to work it out."""
        return worker_files.to_bytes({**asdict(self), "digest": self.digest()})

    @classmethod
    def from_json(cls, data: bytes) -> WorkerSpec:
        """Reads what `to_json` wrote; unknown fields of a newer writer are ignored.

        Raises:
            ValueError: it is not a spec.
        """
        fields = worker_files.spec_from(data)
        del fields["digest"]
        return cls(**{**fields, "argv": tuple(fields["argv"]), "copies": tuple(fields["copies"])})


@dataclass(frozen=True)
class WorkerRecord:
    """Who runs a worker; enough to adopt it, or to kill it and nothing else.

    Attributes:
        worker_id: the name of its folder.
        nonce: random, new at each start.
        spec_digest: `WorkerSpec.digest` of what runs.
        shim: the shim, leader of its own session.
        worker: the worker, leader of its own session and process group.
        started_at: the wall clock at the start, RFC 3339; for people only.
        kind: as in the spec.
        labels: as in the spec.
    """

    worker_id: str
    nonce: str
    spec_digest: str
    shim: ProcessIdentity
    worker: ProcessIdentity
    started_at: str
    kind: str
    labels: dict[str, str]

    def to_json(self) -> bytes:
        return worker_files.to_bytes(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> WorkerRecord:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is not a record.
        """
        fields = worker_files.record_from(data)
        try:
            fields["shim"] = ProcessIdentity(**fields["shim"])
            fields["worker"] = ProcessIdentity(**fields["worker"])
        except TypeError as error:
            raise ValueError(f"not a process identity: {error}") from error
        return cls(**fields)


@dataclass(frozen=True)
class WorkerExit:
    """How a worker ended.

    Attributes:
        code: its exit code, or None if a signal ended it.
        signal: the number of the signal that ended it, or None.
        elapsed_seconds: by the monotonic clock.
        nonce: that of the record, so that an old file is never taken for the new worker's.
        error: why the program could not be started, or an empty string.
        max_rss_bytes: the most memory that one process of it had at a time; None where nobody knows.
    """

    code: int | None
    signal: int | None
    elapsed_seconds: float
    nonce: str
    error: str = ""
    max_rss_bytes: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.code == 0

    def to_json(self) -> bytes:
        return worker_files.to_bytes(asdict(self))

    @classmethod
    def from_json(cls, data: bytes) -> WorkerExit:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: it is not an exit report.
        """
        return cls(**worker_files.exit_from(data))

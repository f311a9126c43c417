"""What the agent needs of the world, as small protocols whose docstrings are contracts.

Adapters under `journeyman.adapters` implement them for real; fakes under `tests/support` implement them
for tests and pass the same suite in `tests/contracts`.  Errors are those of `journeyman.errors`; an
adapter lets no other exception out, not even from an iterator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from journeyman.model.model_file import ModelFile
from journeyman.model.power import Going
from journeyman.model.readings import Measurement
from journeyman_updater.contract import WorkerExit, WorkerRecord, WorkerSpec

JsonObject = dict[str, Any]


class Clock(Protocol):
    """Time.  Only `adapters/system_clock.py` may read the clocks of the host."""

    def now(self) -> datetime:
        """The wall clock, in UTC.  It may jump; nothing is measured with it."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point, never stepping back; for every interval and deadline."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`; at once if it is zero or less.  Cancellable."""
        ...


@dataclass(frozen=True)
class Collection:
    """All objects of one kind: `namespace` is None for cluster-scoped kinds and for "all namespaces"."""

    group: str
    version: str
    plural: str
    namespace: str | None = None

    def named(self, name: str) -> ObjectRef:
        """The one object of this collection that has that name."""
        return ObjectRef(self, name)


@dataclass(frozen=True)
class ObjectRef:
    """One object, by its name in its collection."""

    collection: Collection
    name: str


@dataclass(frozen=True)
class ObjectList:
    """What a list request returned, with the resourceVersion from which a watch goes on."""

    items: list[JsonObject]
    resource_version: str


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: JsonObject


class ControlPlane(Protocol):
    """A Kubernetes-shaped API server, one method for each verb that we use.

    No method retries: the caller knows what a second try would cost.  A call fails once the other side has
    been silent for the request timeout of the settings; a slow link that still carries bytes may take longer.
    """

    async def get(self, ref: ObjectRef) -> JsonObject:
        """Returns the object.  Raises NotFoundError where there is none."""
        ...

    async def list(self, collection: Collection, *, label_selector: str = "") -> ObjectList:
        """Returns all objects of the collection that match the selector."""
        ...

    async def create(self, collection: Collection, body: Mapping[str, Any]) -> JsonObject:
        """Returns the object as stored.  Raises ConflictError where the name is taken."""
        ...

    async def patch(self, ref: ObjectRef, body: Mapping[str, Any], *, subresource: str = "") -> JsonObject:
        """Applies a JSON merge patch (RFC 7386) and returns the object as stored.

        With `metadata.resourceVersion` in the body it is a compare-and-set and raises ConflictError if
        the object has changed since.
        """
        ...

    async def delete(self, ref: ObjectRef) -> None:
        """Deletes the object.  Raises NotFoundError where there is none."""
        ...

    def watch(
        self,
        collection: Collection,
        *,
        resource_version: str,
        label_selector: str = "",
        bookmarks: bool = True,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yields the events after `resource_version` until the server ends the stream.

        With `bookmarks` the server tells about once a minute how far the stream has come, so that one that
        stays silent is known to be dead.  Without them nothing disturbs a host that saves power.  Raises
        ExpiredError when that version is too old, also where a 200 stream says so in an ERROR event.
        """
        ...

    def clock_offset_seconds(self) -> float:
        """The server's clock minus ours, from the Date header of the last reply; 0.0 before the first.

        Whole seconds are all that a Date header gives, so offsets under two seconds are reported as 0.0.
        """
        ...


@dataclass(frozen=True)
class Usage:
    """What a worker uses: resident memory, and what it has written to disks where the host can tell."""

    ram_bytes: int = 0
    written_bytes: int = 0


class Workers(Protocol):
    """The processes that outlive an agent: each runs under a shim of its own.

    A worker is known by its folder `workers/<id>/` alone, so the next agent finds what this one started.
    """

    def start(
        self, worker_id: str, spec: WorkerSpec, files: Mapping[str, bytes] | None = None
    ) -> WorkerRecord:
        """Starts the worker and returns once its record is durable.

        `files` are written to the worker's `files/` folder first, 0600 each: the place for requests and
        keys.  Raises WorkerError if a worker of that id already exists or the program cannot be
        started; then nothing of it is left.
        """
        ...

    def known(self) -> list[WorkerRecord]:
        """The records of all workers on disk, running or not, oldest first.

        Cleans up what a start that was cut off has left, so only the agent that owns the state root may
        ask.  Raises WorkerError if a record cannot be read now.
        """
        ...

    def running(self, record: WorkerRecord) -> bool:
        """Whether that very shim still runs: same boot, pid and start time."""
        ...

    def exit_of(self, record: WorkerRecord) -> WorkerExit | None:
        """How the worker ended; None while it runs, and where nobody knows (the shim was killed)."""
        ...

    async def wait(self, record: WorkerRecord) -> WorkerExit | None:
        """Returns as soon as the shim has ended; what `exit_of` then says."""
        ...

    async def stop(self, record: WorkerRecord, *, grace_seconds: float) -> WorkerExit | None:
        """Asks the worker to end (SIGTERM) and kills its whole session after the grace.

        One that stands still is let go on first, to hear it.  Idempotent.  Returns what `exit_of` then says.
        """
        ...

    def read_file(self, record: WorkerRecord, name: str) -> bytes | None:
        """The content of one file of the worker's `files/` folder, or None if there is none."""
        ...

    def path_of(self, record: WorkerRecord, name: str) -> Path:
        """The path of one file of the worker's `files/` folder, for another worker to read."""
        ...

    def write_file(self, record: WorkerRecord, name: str, content: bytes) -> None:
        """Puts a file into the worker's `files/` folder durably.  Raises WorkerError if that fails."""
        ...

    def last_words(self, record: WorkerRecord) -> str:
        """The last few kilobytes of its stderr; empty where there are none."""
        ...

    def signal(self, record: WorkerRecord, number: int) -> None:
        """Sends a signal to all of the worker's session, if it runs; a SIGSTOP it need not be able to see."""
        ...

    def usage(self, record: WorkerRecord) -> Usage:
        """What all processes of the worker's session use now; zero if it has ended."""
        ...

    def remove(self, record: WorkerRecord) -> None:
        """Deletes the folder of a worker that has ended.  Raises WorkerError if it still runs."""
        ...


class InferenceProbe(Protocol):
    """Whether a model server really generates; a port that is open or a `/health` of 200 proves nothing."""

    async def prove(self, endpoint: Endpoint, model: str, mode: str = "chat") -> None:
        """Returns once the model has generated one token, or done what else its mode says.

        Bounded by the probe's timeout.  Raises WorkerError with the reason if it did not, also for a
        wrong key.
        """
        ...


class ModelStore(Protocol):
    """The models on this host.

    What is asked for is a name, or the path of a GGUF file (it has a `/` in it, or ends in `.gguf`).
    """

    def models(self) -> list[ModelFile]:
        """All models whose files are there, by name."""
        ...

    def find(self, wanted: str) -> ModelFile | None:
        """The model, if it is stored and its file has not changed since.  Reads no weights."""
        ...

    def obtain(self, wanted: str, progress: Callable[[str], None]) -> ModelFile:
        """Finds the model, or takes the user's file where it lies, or fetches one of the catalogue.

        Blocks for as long as downloading and hashing take; `progress` gets one line at each stage.  What
        was fetched is verified before it is stored, and stored in one step.  Raises ModelError if there is
        no such model or it is damaged, and HostError if it could not be fetched or kept; then nothing was
        stored.
        """
        ...

    def verify(self, name: str) -> ModelFile:
        """Reads the whole file and compares its digest.  Raises ModelError if it differs, or is not here."""
        ...


@dataclass(frozen=True)
class Memory:
    """The memory of the host, in bytes."""

    total_bytes: int
    available_bytes: int


class HostProbe(Protocol):
    """Facts about this machine that do not change while the agent runs, and its memory, which does."""

    def os(self) -> str:
        """`darwin` or `linux`, in Go's vocabulary."""
        ...

    def arch(self) -> str:
        """`amd64` or `arm64` where it is one of these, in Go's vocabulary."""
        ...

    def memory(self) -> Memory:
        """Memory now."""
        ...

    def accelerator(self) -> str:
        """`metal`, `cuda`, `vulkan` or `none`, the best one that is usable here."""
        ...


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers: the URL of its OpenAI-compatible API, its key, and what it calls the model."""

    base_url: str
    api_key: bytes = field(repr=False)
    model: str = ""


class Document(Protocol):
    """One small JSON object on disk that is read and replaced as a whole."""

    def load(self) -> JsonObject | None:
        """The object; None where there is none, and where it cannot be read (it is set aside then)."""
        ...

    def save(self, value: Mapping[str, Any]) -> None:
        """Replaces the object durably.  Raises HostError, and then the old one is still there."""
        ...


@dataclass(frozen=True)
class DeadLetter:
    """Something that was set aside, for a person to look at.

    Attributes:
        entry_id: what it was called in the spool.
        why: one line; empty where nobody could write it down.
        value: what it says, or None if it cannot be read.
        place: where it lies.
    """

    entry_id: str
    why: str
    value: JsonObject | None
    place: str


class Spool(Protocol):
    """JSON objects that must outlive the process until somebody else has them, oldest first."""

    def put(self, entry_id: str, value: Mapping[str, Any]) -> None:
        """Stores the entry durably, in place of an older one of that id.  Raises HostError."""
        ...

    def entries(self) -> list[tuple[str, JsonObject]]:
        """All entries by age.  One that cannot be read is set aside, not returned."""
        ...

    def remove(self, entry_id: str) -> None:
        """Forgets the entry durably; nothing happens if there is none."""
        ...

    def set_aside(self, entry_id: str, why: str) -> None:
        """Moves an entry that can never be delivered out of the way, for a person to look at.

        Of those only the newest hundred are kept.  Raises HostError.
        """
        ...

    def dead_letters(self) -> list[DeadLetter]:
        """What was set aside, oldest first."""
        ...


class Sensor(Protocol):
    """One source of facts about the host, such as a folder of sysfs or a program that prints them."""

    @property
    def name(self) -> str:
        """What it is called in logs, such as `power_supply`."""
        ...

    @property
    def period_seconds(self) -> float:
        """How often it is worth asking; after three periods its readings are stale."""
        ...

    def read(self) -> Sequence[Measurement]:
        """Asks once, blocking, within the sensor's own deadline.  Never raises.

        What cannot be read is a measurement without a value that says why; one bad part of a source never
        hides the others.  No two calls overlap.
        """
        ...


class PowerEvents(Protocol):
    """What the host says before it sleeps or shuts down, and when it is back."""

    async def listen(self, going: Callable[[Going], Awaitable[None]], back: Callable[[], None]) -> None:
        """Listens until it is cancelled; the host waits for `going`, for as long as it waits for anybody.

        Args:
            going: is run before the host goes, and bounds itself.
            back: is called when the host is back, or stays after all.

        Raises:
            HostError: nothing can be heard, or no longer.
        """
        ...


class SleepAssertion(Protocol):
    """Keeps the host awake.  It ends by itself with the process that holds it, however that ends."""

    def hold(self) -> None:
        """Asks the host to stay awake; nothing more where it was asked already.  Returns at once."""
        ...

    def release(self) -> None:
        """Lets the host sleep, at once; nothing happens where it may."""
        ...

    def is_held(self) -> bool:
        """Whether the host keeps awake for us at this moment."""
        ...

"""The host lane in words: what a job asks for, what its record keeps, what its waiting line and receipt say.

Pure; who may start is decided by `core/gates/admission.py`, and `loops/lane_loop.py` acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Self

from journeyman.core.failure import Failure
from journeyman.core.gates.admission import Denial, Need
from journeyman.core.holds import Hold
from journeyman.errors import UsageError
from journeyman.model.meta import format_time
from journeyman_updater.contract import WorkerExit, WorkerRecord, WorkerSpec

LANE = "lane"
GRANT_LABEL = "grant"
RECEIPT_FILE = "receipt.json"
RECEIPT_FORMAT = 1
LOG_LIMIT_BYTES = 1024 * 1024
GPU = "gpu"
CANNOT_START = 127
UNTIL = {"NotYourTurn": "its turn"} | {
    f"No{what}": "there is room" for what in ("Slots", "Cpus", "Ram", "Disk", "Vram")
}
_ID = re.compile(r"lane-[a-z0-9.-]{1,60}", re.ASCII)


@dataclass(frozen=True)
class LaneRequest:
    """A job that somebody waits for.

    Attributes:
        job_id: made by the client, so that it can ask again after an agent has gone.
        argv, cwd, env: what to run, as the caller would.
        copies: the fifos that the client reads.
        need: what to reserve.
        lead: whose it is; leads take turns.
        timeout_seconds: how long it may run; None for no end.
        waited_seconds: how long the client has waited already, perhaps on an agent before this one.
    """

    job_id: str
    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    copies: tuple[str, str]
    need: Need
    lead: str
    timeout_seconds: float | None = None
    waited_seconds: float = 0.0

    @classmethod
    def from_args(cls, args: Mapping[str, Any]) -> Self:
        """Reads what a client sent.  Raises UsageError: it is no request."""
        need = args.get("need")
        try:
            request = cls(
                job_id=str(args["id"]),
                argv=tuple(map(str, args["argv"])),
                cwd=str(args["cwd"]),
                env={str(name): str(value) for name, value in args["env"].items()},
                copies=(str(args["copies"][0]), str(args["copies"][1])),
                need=_need_from(need if isinstance(need, dict) else {}),
                lead=str(args["lead"]),
                timeout_seconds=None if args.get("timeoutSeconds") is None else float(args["timeoutSeconds"]),
                waited_seconds=max(0.0, float(args.get("waitedSeconds", 0))),
            )
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"that is no request for the lane: {error!r}") from error
        if not _ID.fullmatch(request.job_id) or not request.argv:
            raise UsageError("a job of the lane has an id and a command")
        return request


@dataclass(frozen=True)
class Grant:
    """What was granted, kept in the worker's record so that the next agent knows it.

    Attributes:
        command: what runs.
        need: what is reserved.
        lead: whose it is.
        granted_at: the monotonic clock, which every process of one boot shares.
        waited_seconds: how long it waited for that.
        timeout_seconds: how long it may run; None for no end.
    """

    command: tuple[str, ...]
    need: Need
    lead: str
    granted_at: float
    waited_seconds: float
    timeout_seconds: float | None

    def to_label(self) -> str:
        need = {**asdict(self.need), "capabilities": sorted(self.need.capabilities)}
        return json.dumps({**asdict(self), "need": need}, sort_keys=True)

    @classmethod
    def from_label(cls, text: str) -> Self:
        """Reads what `to_label` wrote.  Raises ValueError: it is no grant."""
        try:
            value = json.loads(text)
            need = {**value["need"], "capabilities": frozenset(value["need"]["capabilities"])}
            return cls(**{**value, "command": tuple(value["command"]), "need": Need(**need)})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no grant: {error!r}") from error


@dataclass(frozen=True)
class Receipt:
    """What became of a job.

    Attributes:
        job_id: which.
        grant: what it was given.
        started_at: the wall clock, RFC 3339; empty if it never ran.
        ended_at: the wall clock when its end was noticed.
        ended: how it ended; None where nobody knows.
        failure: why, with its evidence.
        peak_bytes: the most memory that it was seen to use; None where nobody looked.
        steps: what the gates did to it while it ran.
        error: why it could not be started.
    """

    job_id: str
    grant: Grant
    started_at: str
    ended_at: datetime
    ended: WorkerExit | None
    failure: Failure
    peak_bytes: int | None = None
    steps: Sequence[Mapping[str, Any]] = field(default=())
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        need, ended = self.grant.need, self.ended
        return {
            "format": RECEIPT_FORMAT,
            "id": self.job_id,
            "command": list(self.grant.command),
            "lead": self.grant.lead,
            "reserved": {
                "ramBytes": need.ram_bytes,
                "diskBytes": need.disk_bytes,
                "vramBytes": need.vram_bytes,
                "cpus": need.cpus,
            },
            "waitedSeconds": round(self.grant.waited_seconds, 3),
            "startedAt": self.started_at or None,
            "endedAt": format_time(self.ended_at),
            "elapsedSeconds": None if ended is None else round(ended.elapsed_seconds, 3),
            "exitCode": None if ended is None else ended.code,
            "signal": None if ended is None else ended.signal,
            "peakMemoryBytes": self.peak_bytes,
            "why": self.failure.code,
            "confidence": self.failure.confidence.value,
            "evidence": list(self.failure.evidence),
            "uncertain": ended is None,
            "steps": [dict(step) for step in self.steps],
            "error": self.error,
        }


def lane_spec(request: LaneRequest, grant: Grant) -> WorkerSpec:
    """How the job is run: as the caller would, with its output copied to the caller."""
    return WorkerSpec(
        kind=LANE,
        argv=request.argv,
        env=dict(request.env),
        cwd=request.cwd,
        log_limit_bytes=LOG_LIMIT_BYTES,
        labels={GRANT_LABEL: grant.to_label()},
        copies=request.copies,
        private=True,
    )


def grant_of(record: WorkerRecord) -> Grant:
    """What a job of an earlier agent was granted.  Raises ValueError: the record does not say."""
    return Grant.from_label(record.labels.get(GRANT_LABEL, ""))


def held_denial(ticket_id: str, hold: Hold, retry_seconds: float) -> Denial:
    """Why nothing starts while somebody other than a gate keeps work away from this host."""
    until = "" if hold.until is None else format_time(hold.until)
    return Denial(ticket_id, "Held", f"{hold.owner.value}: {hold.reason}", retry_seconds, until)


def waiting_line(denial: Denial, place: int, count: int) -> str:
    """Why a job waits, in which place of the queue, and until when; the same while nothing changes."""
    # What a gate says of itself has its end in it.
    until = (
        "" if denial.code == "GateClosed" else f", until {UNTIL.get(denial.code) or denial.until or 'lifted'}"
    )
    return f"waits in place {place} of {count}: {denial.code}: {denial.message}{until}"


def _need_from(value: Mapping[str, Any]) -> Need:
    vram = _amount(value.get("vramBytes", 0))
    return Need(
        ram_bytes=int(_amount(value.get("ramBytes", 0))),
        disk_bytes=int(_amount(value.get("diskBytes", 0))),
        vram_bytes=int(vram),
        cpus=_amount(value.get("cpus", 1)),
        capabilities=frozenset({GPU} if vram else ()),
    )


def _amount(value: Any) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError(f"{value!r} is no amount")
    return number

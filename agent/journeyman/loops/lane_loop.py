"""The host lane: commands that wait for admission, run as workers, and leave a receipt.

A client asks again and again, each time for a few seconds; whoever asks no more has left the queue.  What
runs is known by its worker's record alone, with the grant in it, so the next agent adopts both.  Leaves to
`core/lane_queue.py` who may start, and to the ladder when the gates interrupt what runs.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import structlog

from journeyman.core.failure import End, Failure, Witness, why_it_ended
from journeyman.core.gates.admission import Reservation, Ticket
from journeyman.core.gates.ladder import Action, Do, Job
from journeyman.core.gates.marks import AdmissionMarks
from journeyman.core.lane import CANNOT_START, LANE, RECEIPT_FILE, Grant, LaneRequest, grant_of, lane_spec
from journeyman.core.lane_job import LaneJob
from journeyman.core.lane_queue import Offer, Told, decide
from journeyman.errors import HostError, UsageError, WorkerError
from journeyman.ports import Clock, JsonObject, Workers
from journeyman.settings import Settings
from journeyman.waiting import happens_within
from journeyman_updater.contract import WorkerExit, WorkerRecord

log = structlog.get_logger(__name__)

SIGNALS = {"TERM": signal.SIGTERM, "KILL": signal.SIGKILL, "HUP": signal.SIGHUP, "PIPE": signal.SIGPIPE}
NEVER = "NeedExceedsHost"


@dataclass
class _Waiting:
    """A job in the queue, and its client: how many of its polls are open, and when the last one ended."""

    request: LaneRequest
    ticket: Ticket
    asked_at: float
    polls: int = 0
    told: Told | None = None

    @property
    def line(self) -> str:
        return "" if self.told is None else self.told.line


class LaneLoop:
    """The jobs of this host.

    Args:
        workers: the processes.
        clock: time.
        settings: grace, the bound of a poll, how many receipts are kept.
        offer: what the host can take on now.
        marks: of admission.
        witness: looks at the host when a job begins and when it has ended.
        changed: called when a job has begun or ended.
    """

    def __init__(
        self,
        *,
        workers: Workers,
        clock: Clock,
        settings: Settings,
        offer: Callable[[], Offer],
        marks: AdmissionMarks,
        witness: Witness,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._settings = settings
        self._offer = offer
        self._marks = marks
        self._witness = witness
        self._changed = changed
        self._waiting: dict[str, _Waiting] = {}
        self._running: dict[str, LaneJob] = {}
        self._receipts: dict[str, JsonObject] = {}
        self._kept: list[WorkerRecord] = []
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def adopt(self) -> None:
        """Takes up the jobs of the agent before this one, and what they had reserved.

        Whatever stood still goes on: nobody knows any more for how long it has; the ladder decides anew.
        """
        for record in self._workers.known():
            if record.kind != LANE:
                continue
            stored = _stored_receipt(self._workers, record)
            if stored is not None:
                self._keep(record, stored)
                continue
            try:
                job = LaneJob(record.worker_id, grant_of(record), self._witness.surroundings(), record)
            except ValueError as error:
                log.warning("worker_without_grant_ignored", worker=record.worker_id, error=str(error))
                continue
            self._workers.signal(record, signal.SIGCONT)
            self._running[job.job_id] = job
            self._begin(self._see_it_end(job, record))
            log.info("lane_job_adopted", job=job.job_id)

    def running(self) -> int:
        """How many jobs run."""
        return len(self._running)

    def promised_ram_bytes(self) -> float:
        """What was granted to jobs and is not in use yet."""
        now = self._clock.monotonic()
        reservations = (job.reservation() for job in self._running.values())
        return sum(one.outstanding_ram_bytes(now, self._marks) for one in reservations)

    async def stop_all(self) -> None:
        """Ends every job."""
        for job in list(self._running.values()):
            self._end(job, "AgentStopped", self._settings.worker_stop_grace_seconds)
        while self._running:
            await self._news.wait()

    async def let_go(self) -> None:
        """Stops watching; the jobs go on, for the next agent to adopt, and none stands still meanwhile."""
        for job in self._running.values():
            self._stand(job, still=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Admission.

    def decide(self) -> None:
        """Starts what may start now, and finds out why the rest waits.  Cheap: it asks caches alone."""
        now = self._clock.monotonic()
        for job_id, waiting in list(self._waiting.items()):
            if not waiting.polls and now - waiting.asked_at > self._settings.request_timeout_seconds:
                log.info("lane_client_left", job=job_id)
                del self._waiting[job_id]
        if self._waiting:
            queue = [waiting.ticket for waiting in self._waiting.values()]
            running = [job.reservation() for job in self._running.values()]
            decision = decide(queue, running, self._offer(), now, self._marks)
            for reservation in decision.granted:
                self._grant(self._waiting.pop(reservation.ticket_id), reservation, now)
            for job_id, told in decision.told.items():
                self._waiting[job_id].told = told
        self._tell()

    def _grant(self, waiting: _Waiting, reservation: Reservation, now: float) -> None:
        request, waited = waiting.request, now - waiting.ticket.queued_at
        grant = Grant(request.argv, reservation.need, request.lead, now, waited, request.timeout_seconds)
        job = LaneJob(request.job_id, grant, self._witness.surroundings())
        self._running[job.job_id] = job
        self._begin(self._start(job, request))
        self._changed()

    async def _start(self, job: LaneJob, request: LaneRequest) -> None:
        spec = lane_spec(request, job.grant)
        try:
            record = await asyncio.to_thread(self._workers.start, job.job_id, spec)
        except WorkerError as error:
            log.warning("lane_job_not_started", job=job.job_id, error=error.message)
            ended = WorkerExit(CANNOT_START, None, 0.0, "")
            failure = why_it_ended(End(ended, error=error.message), job.before, job.before)
            self._finish(job, job.receipt(ended, failure, self._clock.now(), error=error.message))
            return
        log.info("lane_job_started", job=job.job_id, waited_seconds=round(job.grant.waited_seconds, 1))
        job.record = record
        if job.stopped_by:
            self._begin(self._stop(record, self._settings.worker_stop_grace_seconds))
        self._tell()
        await self._see_it_end(job, record)

    # What runs.

    async def _see_it_end(self, job: LaneJob, record: WorkerRecord) -> None:
        timing = asyncio.create_task(self._enforce_timeout(job))
        try:
            ended = await self._workers.wait(record)
        finally:
            timing.cancel()
        receipt = job.receipt(ended, await self._why(job, record, ended), self._clock.now())
        log.info("lane_job_ended", job=job.job_id, why=receipt["why"])
        # Whoever waits is told first: should the receipt not be kept, the next agent makes it anew.
        self._finish(job, receipt)
        try:
            self._workers.write_file(record, RECEIPT_FILE, json.dumps(receipt, indent=2).encode())
        except WorkerError as error:
            log.warning("receipt_not_kept", job=job.job_id, error=error.message)
        self._keep(record, receipt)

    async def _why(self, job: LaneJob, record: WorkerRecord, ended: WorkerExit | None) -> Failure:
        end = End(ended, job.stopped_by)
        if ended is not None and ended.succeeded:
            return why_it_ended(end, job.before, job.before)
        end = replace(end, last_words=self._workers.last_words(record))
        failure = why_it_ended(end, job.before, self._witness.surroundings())
        if failure.code not in {"Unknown", f"Signal{signal.SIGKILL}"}:
            return failure
        oomd = await asyncio.to_thread(self._witness.oomd, record.started_at)
        return why_it_ended(replace(end, oomd=oomd), job.before, self._witness.surroundings())

    async def _enforce_timeout(self, job: LaneJob) -> None:
        while (left := job.left_seconds(self._clock.monotonic())) is not None:
            if left <= 0:
                self._end(job, "Timeout", self._settings.worker_stop_grace_seconds)
                return
            # A job that stands still uses none of its time, so it is looked at again.
            await self._clock.sleep(left)

    def _end(self, job: LaneJob, why: str, grace_seconds: float) -> None:
        """Begins to end it; the first reason counts."""
        job.stopped_by = job.stopped_by or why
        if job.record is not None:
            self._begin(self._stop(job.record, grace_seconds))

    async def _stop(self, record: WorkerRecord, grace_seconds: float) -> None:
        await self._workers.stop(record, grace_seconds=grace_seconds)

    def _stand(self, job: LaneJob, *, still: bool) -> None:
        if job.record is not None and job.turn_still(self._clock.monotonic(), still=still):
            self._workers.signal(job.record, signal.SIGSTOP if still else signal.SIGCONT)

    def _finish(self, job: LaneJob, receipt: JsonObject) -> None:
        del self._running[job.job_id]
        self._receipts[job.job_id] = receipt
        self.decide()
        self._changed()

    def _keep(self, record: WorkerRecord, receipt: JsonObject) -> None:
        """Remembers a job that has ended, and forgets the oldest ones."""
        kept = self._settings.lane_receipts_kept
        self._receipts[record.worker_id] = receipt
        self._kept.append(record)
        while len(self._kept) > kept:
            oldest = self._kept.pop(0)
            self._receipts.pop(oldest.worker_id, None)
            self._workers.remove(oldest)
        # Those that could not be started have left no folder.
        for job_id in list(self._receipts)[: -2 * kept]:
            del self._receipts[job_id]

    # The ladder; see `loops/ladder_loop.py`.

    def work(self) -> list[Job]:
        """What runs, with what it uses now."""
        started = [(job, job.record) for job in self._running.values() if job.record is not None]
        jobs = []
        for job, record in started:
            usage = self._workers.usage(record)
            jobs.append(job.seen(usage.ram_bytes, usage.written_bytes))
        return jobs

    def carry_out(self, action: Action) -> None:
        """Takes one step of the ladder with one job; returns at once."""
        job = self._running.get(action.job_id)
        if job is None or job.record is None:
            return
        job.note(action, self._clock.now())
        why = f"GateStopped:{action.gate}" if action.gate else action.reason
        match action.do:
            case Do.SUSPEND | Do.RESUME:
                self._stand(job, still=action.do is Do.SUSPEND)
            case Do.TERMINATE:
                self._end(job, why, action.grace_seconds)
            case Do.KILL:
                job.stopped_by = job.stopped_by or why
                self._workers.signal(job.record, signal.SIGKILL)

    # The verbs of the control socket.

    async def run_verb(self, args: JsonObject) -> JsonObject:
        """`lane-run`: takes the job into the queue, or says where it stands; bounded, so ask again.

        Raises:
            UsageError: it is no request.
            HostError: this host could never run it.
        """
        request, seen = LaneRequest.from_args(args), str(args.get("seen", ""))
        if request.job_id in self._running or request.job_id in self._receipts:
            await self._poll(lambda: self._is_old(request.job_id, seen))
            return self._state(request.job_id)
        waiting = self._waiting.get(request.job_id) or self._queue(request)
        waiting.polls += 1
        try:
            self.decide()
            await self._poll(lambda: self._is_old(request.job_id, seen))
        finally:
            waiting.polls -= 1
            waiting.asked_at = self._clock.monotonic()
        told = waiting.told
        if request.job_id not in self._waiting or told is None:
            return self._state(request.job_id)
        if told.denial.code == NEVER:
            del self._waiting[request.job_id]
            raise HostError(f"this host can never run it: {told.denial.message}", "Ask for less.")
        denial = told.denial
        return {
            "state": "queued", "line": told.line, "code": denial.code,
            "retryAfterSeconds": denial.retry_after_seconds,
        }  # fmt: skip

    async def wait_verb(self, args: JsonObject) -> JsonObject:
        """`lane-wait`: says where a job that was granted stands, when it ends or a poll's time is over."""
        job_id = str(args.get("id"))
        await self._poll(lambda: job_id in self._running)
        return self._state(job_id)

    async def signal_verb(self, args: JsonObject) -> JsonObject:
        """`lane-signal`: sends TERM, KILL, HUP or PIPE to the job, or takes it out of the queue."""
        job_id, name = str(args.get("id")), str(args.get("signal"))
        if name not in SIGNALS:
            raise UsageError(f"{name!r} is no signal for a job", f"Send one of {', '.join(SIGNALS)}.")
        if self._waiting.pop(job_id, None) is not None:
            self.decide()
            return {"state": "left"}
        await self._poll(lambda: job_id in self._running and self._running[job_id].record is None)
        job = self._running.get(job_id)
        if job is not None and job.record is not None:
            job.stopped_by = job.stopped_by or "Cancelled"
            self._workers.signal(job.record, SIGNALS[name])
            # One that stands still would not hear it.
            self._stand(job, still=False)
        return self._state(job_id)

    def _queue(self, request: LaneRequest) -> _Waiting:
        now = self._clock.monotonic()
        ticket = Ticket(request.job_id, request.lead, request.need, now - request.waited_seconds)
        self._waiting[request.job_id] = _Waiting(request, ticket, now)
        return self._waiting[request.job_id]

    def _is_old(self, job_id: str, seen: str) -> bool:
        """Whether there is nothing new to tell about a job: in the queue as `seen`, or about to start."""
        if job_id in self._waiting:
            return self._waiting[job_id].line == seen
        return job_id in self._running and self._running[job_id].record is None

    def _state(self, job_id: str) -> JsonObject:
        if job_id in self._running:
            return {"state": "starting" if self._running[job_id].record is None else "running"}
        if job_id in self._receipts:
            return {"state": "ended", "receipt": self._receipts[job_id]}
        raise UsageError(f"this host has no job {job_id}", "It has left the queue, or is long forgotten.")

    async def _poll(self, unchanged: Callable[[], bool]) -> None:
        """Waits while nothing is new, for half as long as a request may take."""
        deadline = self._clock.monotonic() + self._settings.request_timeout_seconds / 2
        while unchanged():
            left = deadline - self._clock.monotonic()
            if left <= 0 or not await happens_within(self._news, left, self._clock):
                return

    def _tell(self) -> None:
        """Wakes all polls, and makes them wait for the next news from then on."""
        self._news.set()
        self._news = asyncio.Event()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _stored_receipt(workers: Workers, record: WorkerRecord) -> JsonObject | None:
    try:
        value = json.loads(workers.read_file(record, RECEIPT_FILE) or b"null")
    except (WorkerError, ValueError) as error:
        log.warning("receipt_not_read", worker=record.worker_id, error=str(error))
        return None
    return value if isinstance(value, dict) else None

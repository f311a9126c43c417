"""The life of one model server: brings it up, proves it, and begins anew when it has ended.

Which phase follows what is decided in `core/model_server.py`.  Left to others: which servers there are, and
who has to make room for whom.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from journeyman.core.completion import KEY_FILE
from journeyman.core.liveness import Life, look
from journeyman.core.model_admission import Refusal
from journeyman.core.model_server import (
    BackoffPolicy,
    Ended,
    Event,
    Phase,
    Proven,
    Rested,
    RetryDue,
    Shed,
    Wanted,
    gives_memory_back,
    step,
)
from journeyman.core.server_config import ServerConfig
from journeyman.core.server_failure import Failure, FailureKind, failure_of, failure_of_model
from journeyman.core.worker_specs import ENDPOINT_FILE, FAILURE_FILE, REASON_FILE
from journeyman.errors import HostError, ModelError, WorkerError
from journeyman.ports import Clock, Endpoint, InferenceProbe, Workers
from journeyman.serving.neighbours import Neighbours
from journeyman.serving.server import Server
from journeyman.serving.starting import Starter
from journeyman.serving.use import Use
from journeyman.settings import Settings
from journeyman.waiting import first_of, happens_within
from journeyman_updater.contract import WorkerExit, WorkerRecord

log = structlog.get_logger(__name__)

JITTER_FRACTION = 0.1


@dataclass(frozen=True)
class Surroundings:
    """What one server depends on that is not its own.

    Attributes:
        neighbours: see there.
        place_free: returns once nobody is left who has to go before it starts.
        memory_free: returns once the host has memory again.
        given_back: called when one has ended and will not take its memory again soon.
        made_place: whether another server has just been ended for this one; see `Places.made_for`.
    """

    neighbours: Neighbours
    place_free: Callable[[str], Awaitable[None]]
    memory_free: Callable[[], Awaitable[None]]
    given_back: Callable[[], None]
    made_place: Callable[[Keeper], Awaitable[bool]]


class Keeper:
    """Keeps one server.

    Args:
        server: what is known of it; nobody else changes its state.
        workers: the processes.
        starter: obtains models and starts workers.
        probe: proves that a server generates.
        clock: time.
        settings: timeouts and grace periods.
        surroundings: see there.
    """

    def __init__(
        self,
        server: Server,
        *,
        workers: Workers,
        starter: Starter,
        probe: InferenceProbe,
        clock: Clock,
        settings: Settings,
        surroundings: Surroundings,
    ) -> None:
        self.server = server
        self._workers = workers
        self._starter = starter
        self._probe = probe
        self._clock = clock
        self._settings = settings
        self._surroundings = surroundings
        self._policy = BackoffPolicy(settings.model_backoff_max_seconds, settings.model_healthy_seconds)
        self._shed = ""
        self._doubted = asyncio.Event()
        self._given_back = asyncio.Event()
        self._wanted = asyncio.Event()
        self.use = Use(server, surroundings.neighbours, clock, settings, surroundings.neighbours.changed)

    async def keep(self) -> None:
        """Keeps it until it has failed for good, or until this is cancelled: it goes on then."""
        server = self.server
        while True:
            match server.state.phase:
                case Phase.STARTING:
                    event = await self._bring_up()
                case Phase.READY:
                    event = await self._until_bad()
                case Phase.BACKOFF:
                    await self._until_retry()
                    event = self._again()
                case Phase.HELD:
                    await self._surroundings.memory_free()
                    event = self._again()
                case Phase.ASLEEP:
                    await self._wanted.wait()
                    event = Wanted()
                case Phase.FAILED:
                    return
            self._advance(event)

    def adopt(self, record: WorkerRecord) -> None:
        """Takes up a worker that runs for the same configuration; it is proven before it counts as ready."""
        self.server.record = record
        self.server.adopted_endpoint = self._endpoint_of(record)
        log.info("model_server_adopted", model=self.server.model, worker=record.worker_id)

    def make_room(self, reason: str) -> None:
        """Its worker is about to be ended for memory; it comes back when there is some.

        Args:
            reason: the reason code of the gate.
        """
        self._shed = reason
        self.server.is_leaving = True
        self._surroundings.neighbours.changed()

    def wake(self) -> bool:
        """Somebody asks for it: it is started if it sleeps, and as soon as it does if it is about to.

        Returns:
            Whether it is worth waiting for.
        """
        self.use.note_asked()
        if self.server.sleeps:
            self._wanted.set()
        # Whether one that leaves goes to sleep will be known in a moment.
        return self.server.sleeps or self.server.is_leaving

    async def give_way(self, deadline: float, *, must_finish: bool = False) -> bool:
        """Whether its memory is free for another one.

        Args:
            deadline: in monotonic seconds; a server that is no longer kept would never be free.
            must_finish: it gets nothing new until then; otherwise it gives way only if nobody uses it now.
        """
        server = self.server
        if not server.gives_way or server.state.phase is not Phase.READY:
            return False
        if not must_finish and await self.use.is_used_now():
            return False
        self.use.yield_soon(deadline if must_finish else None)
        while self.use.is_yielding and server.state.phase is Phase.READY:
            if self._clock.monotonic() >= deadline:
                break
            await self._clock.sleep(self._settings.model_probe_interval_seconds)
        return server.endpoint is None

    def doubt(self) -> None:
        """Something has happened that a server may not have survived, such as a sleep: look at it now."""
        self._doubted.set()

    def memory_given_back(self) -> None:
        """Another server has left its memory: one that waits for memory is tried again now."""
        self._given_back.set()

    async def _until_retry(self) -> None:
        state = self.server.state
        woken = self._given_back if state.failure == FailureKind.NO_MEMORY.value else asyncio.Event()
        await happens_within(woken, state.retry_at - self._clock.monotonic(), self._clock)

    def _advance(self, event: Event) -> None:
        self.server.progress = ""
        jitter = random.uniform(-JITTER_FRACTION, JITTER_FRACTION)
        server = self.server
        before = server.state.phase
        server.state = step(server.state, event, self._clock.monotonic(), jitter, self._policy)
        if server.state.phase is Phase.ASLEEP:
            server.sleeps = True
        else:
            self._wanted.clear()
            # One that was woken sleeps, for others, until it answers.
            server.sleeps = server.sleeps and server.state.phase is Phase.STARTING
        if server.state.phase is Phase.READY:
            self.use.begin()
        log.info(
            "model_server_changed",
            model=server.model,
            phase=server.state.phase.value,
            reason=server.state.reason,
        )
        self._surroundings.neighbours.changed()
        if gives_memory_back(before, server.state.phase):
            self._surroundings.given_back()

    def _again(self) -> RetryDue | Rested:
        """Tries again what is always to be there, and what was not fetched; others wait to be asked."""
        return Rested() if self.server.is_on_demand and self.server.config is not None else RetryDue()

    async def _bring_up(self) -> Event:
        """Starts the server unless it was adopted, and returns when it has proven itself or has ended."""
        server = self.server
        if not server.is_ours:
            return await self._reach()
        try:
            record = server.record
            if record is None or not self._workers.running(record):
                started = await self._start()
                if not isinstance(started, WorkerRecord):
                    return started
                record = server.record = started
        except (WorkerError, HostError) as error:
            return Ended(_not_started(error))
        timeout_seconds = server.start_seconds(self._settings)
        ended, proven, _ = await first_of(
            self._workers.wait(record), self._until_proven(record), self._clock.sleep(timeout_seconds)
        )
        if not ended.cancelled():
            return self._ended(ended.result())
        if not proven.cancelled():
            server.endpoint, server.adopted_endpoint = proven.result(), None
            return Proven()
        server.adopted_endpoint = None
        await self._workers.stop(record, grace_seconds=self._settings.worker_stop_grace_seconds)
        because = f": {server.progress}" if server.progress else ""
        return Ended(Failure(FailureKind.SLOW, f"no token within {timeout_seconds:g} s{because}"))

    async def _reach(self) -> Event:
        """Proves a server that is not ours, or says why it cannot be."""
        try:
            endpoint = self._external_endpoint()
            await self._prove(endpoint)
        except WorkerError as error:
            return Ended(Failure(FailureKind.NOT_REACHED, error.message))
        self.server.endpoint = endpoint
        return Proven()

    def _external_endpoint(self) -> Endpoint:
        wanted = self.server.wanted
        try:
            key = b"" if wanted.key_file is None else wanted.key_file.read_bytes().strip()
        except OSError as error:
            raise WorkerError(f"the key in {wanted.key_file} cannot be read: {error.strerror}") from error
        return Endpoint(wanted.url or "", key, self.server.upstream_model)

    async def _until_bad(self) -> Event:
        """Returns when a server that was ready has ended, or does not generate any more."""
        record = self.server.record
        if record is None:
            failure = await self._until_hung()
            self.server.endpoint = None
            return Ended(failure)
        await self._surroundings.neighbours.room.settled(record)
        ended, hung, idle = await first_of(
            self._workers.wait(record), self._until_hung(), self.use.until_over()
        )
        if not ended.cancelled():
            return self._ended(ended.result())
        if hung.cancelled():
            idle.result()
            return await self._rest(record)
        self.server.endpoint = None
        # Nobody shall be sent to it while it is being ended.
        self._surroundings.neighbours.changed()
        await self._workers.stop(record, grace_seconds=self._settings.worker_stop_grace_seconds)
        self._ended(None)
        return Ended(hung.result())

    async def _rest(self, record: WorkerRecord) -> Rested:
        """Ends a server to which nobody is sent any more."""
        server = self.server
        # Who asks from now on wakes it again.
        server.endpoint, server.sleeps = None, True
        await self._workers.stop(record, grace_seconds=self._settings.model_drain_seconds)
        self._workers.remove(record)
        server.record, server.is_leaving, self._shed = None, False, ""
        return Rested()

    async def _until_hung(self) -> Failure:
        life = Life(self._clock.monotonic())
        while True:
            await happens_within(self._doubted, self._settings.model_liveness_seconds, self._clock)
            self._doubted.clear()
            traffic = (await self._surroundings.neighbours.traffic() or {}).get(self.server.model)
            life, must_prove = look(
                life,
                traffic,
                in_use=self._surroundings.neighbours.in_use(),
                now=self._clock.monotonic(),
                patience=self._settings.proxy_stall_seconds,
            )
            if not must_prove:
                continue
            # One question may be lost for reasons that are not the server's.
            silence = await self._silence() and await self._silence()
            if silence:
                return Failure(FailureKind.HUNG, f"it does not generate any more: {silence}")
            life = life.seen(self._clock.monotonic())

    async def _prove(self, endpoint: Endpoint) -> None:
        await self._probe.prove(endpoint, self.server.upstream_model, self.server.wanted.mode)

    async def _silence(self) -> str:
        """Why it did not generate a token; empty if it did."""
        assert self.server.endpoint is not None
        try:
            await self._prove(self.server.endpoint)
        except WorkerError as error:
            return error.message
        return ""

    async def _start(self) -> WorkerRecord | Ended | Rested:
        config = self.server.config = await self._starter.obtain(self.server)
        if self.server.is_on_demand and not self.server.sleeps:
            # The model is here, so its name is known and nobody who asks waits for a download.
            return Rested()
        await self._surroundings.place_free(config.model)
        # What ends from here on may not be in the verdict any more.
        self._given_back.clear()
        refusal = await self._refusal(config)
        if refusal is not None:
            kind = FailureKind.TOO_LARGE if refusal.is_final else FailureKind.NO_MEMORY
            return Ended(Failure(kind, refusal.message))
        return self._starter.start(config)

    async def _refusal(self, config: ServerConfig) -> Refusal | None:
        """Why it may not start, after idle servers have made place for one that somebody asks for."""
        while (refusal := await self._surroundings.neighbours.room.refuse(config)) is not None:
            may_be_cured = self.server.is_on_demand and not refusal.is_final
            if not may_be_cured or not await self._surroundings.made_place(self):
                break
        return refusal

    async def _until_proven(self, record: WorkerRecord) -> Endpoint:
        while True:
            endpoint = self._endpoint_of(record)
            if endpoint is not None:
                try:
                    await self._prove(endpoint)
                except WorkerError as error:
                    self.server.progress = f"not proven yet: {error.message}"
                    log.info("model_server_not_proven", model=self.server.model, error=error.message)
                else:
                    return endpoint
            await self._clock.sleep(self._settings.model_probe_interval_seconds)

    def _endpoint_of(self, record: WorkerRecord) -> Endpoint | None:
        told = self._workers.read_file(record, ENDPOINT_FILE)
        key = self._workers.read_file(record, KEY_FILE)
        if told is None or key is None:
            return None
        try:
            return Endpoint(json.loads(told)["base_url"], key, self.server.upstream_model)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("model_endpoint_unreadable", worker=record.worker_id, error=str(error))
            return None

    def _ended(self, ended: WorkerExit | None) -> Ended | Shed:
        server = self.server
        server.endpoint = server.adopted_endpoint = None
        server.is_leaving = False
        assert server.record is not None
        if shed := self._shed:
            self._shed = ""
            return Shed(shed)
        told = self._workers.read_file(server.record, FAILURE_FILE) or b""
        reason = self._workers.read_file(server.record, REASON_FILE) or b""
        failure = Failure.from_json(told) or failure_of(ended, reason.decode(errors="replace").strip())
        return Ended(failure)


def _not_started(error: WorkerError | HostError) -> Failure:
    """Why there is no worker at all."""
    if isinstance(error, ModelError):
        return failure_of_model(error)
    return Failure(
        FailureKind.NOT_FETCHED if isinstance(error, HostError) else FailureKind.CRASHED, error.message
    )

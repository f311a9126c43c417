"""Keeps the proxy of this host running, and tells it where each model answers.

The proxy is a worker, so it and its streams outlive the agent.  One of another release or with other
settings is asked to leave: it frees the port at once, the next one takes that over, and the old one goes
when its last stream has ended.  Which phase follows what is decided in `core/model_server.py`.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from collections.abc import Callable, Sequence

import structlog

from journeyman.core.model_server import BackoffPolicy, Ended, Event, Phase, Proven, RetryDue, begin, step
from journeyman.core.proxy.config import USUAL_PORT, Keys, ProxyConfig
from journeyman.core.proxy.routes import ROUTES_FILE, Route, routes_to_json
from journeyman.core.server_failure import Failure, FailureKind, failure_of
from journeyman.core.worker_specs import (
    CONFIG_LABEL,
    ENDPOINT_FILE,
    PROXY,
    REACH_FILE,
    REASON_FILE,
    Interpreter,
    proxy_spec,
)
from journeyman.errors import HostError, WorkerError
from journeyman.ports import Clock, Document, JsonObject, Workers
from journeyman.settings import Settings
from journeyman.waiting import first_of
from journeyman_updater.contract import WorkerExit, WorkerRecord

log = structlog.get_logger(__name__)

JITTER_FRACTION = 0.1
START_SECONDS = 30.0
# A predecessor leaves the port within milliseconds; somebody else would not leave it at all.
PORT_PATIENCE_SECONDS = 10.0


class ProxyLoop:
    """The proxy of this host, or the lack of one where it has no models or does not want it.

    Args:
        workers: the processes.
        clock: time.
        settings: whether there shall be one, its port and its limits.
        interpreter: the Python that runs it.
        keys: what its clients have to show; raises HostError if there is none.
        memory: where the port of last time is kept.
        routes: where each model answers at this moment.
        version: of this release.
        changed: called after each change of its phase.
    """

    def __init__(
        self,
        *,
        workers: Workers,
        clock: Clock,
        settings: Settings,
        interpreter: Interpreter,
        keys: Callable[[], Keys],
        memory: Document,
        routes: Callable[[], Sequence[Route]],
        version: str,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._workers = workers
        self._clock = clock
        self._settings = settings
        self._interpreter = interpreter
        self._keys = keys
        self._memory = memory
        self._routes = routes
        self._version = version
        self._tell_others = changed
        self._policy = BackoffPolicy(settings.model_backoff_max_seconds, settings.model_healthy_seconds)
        self._state = begin(clock.monotonic())
        self._record: WorkerRecord | None = None
        self._url = ""
        self._changed = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        """Whether this host shall have a proxy."""
        may_serve = self._settings.fleet_services or bool(self._settings.served())
        return self._settings.proxy and may_serve

    def url(self) -> str:
        """Where it answers; empty while it does not."""
        return self._url

    def routes_changed(self) -> None:
        """A model answers at another place, or no longer, or again."""
        self._changed.set()

    def snapshot(self) -> JsonObject:
        """What people are shown of it; the key is not among it, only its file."""
        if not self.is_wanted:
            return {}
        return {
            "phase": self._state.phase.value,
            "baseUrl": self._url,
            "keyFile": str(self._settings.root.proxy_key_file),
            "reason": self._state.reason,
        }

    def why_not_reachable(self) -> str:
        """Why the proxy does not listen for other machines at this moment; empty if it does."""
        told = self._workers.read_file(self._record, REACH_FILE) if self._record and self._url else None
        return "the proxy is not ready" if told is None else str(json.loads(told)["why_not"])

    def adopt(self) -> None:
        """Takes up the proxy that runs with the same settings.  Needs no network.

        It is told at once of model servers that this agent will ask to leave, before anybody does.
        """
        self._try_to_tell()
        if not self.is_wanted:
            return
        try:
            label = self._label(self._keys())
        except HostError as error:
            log.warning("proxy_key_not_read", error=error.message)
            return
        for record in self._of_proxies():
            if record.labels.get(CONFIG_LABEL) == label and self._workers.running(record):
                self._record = record
                self._url = self._url_of(record)
        if self._record is not None:
            log.info("proxy_adopted", worker=self._record.worker_id)

    async def run(self) -> None:
        """Lets others leave, and keeps one until it is cancelled: it goes on then."""
        async with asyncio.TaskGroup() as tasks:
            for stray in self._of_proxies():
                if stray != self._record:
                    tasks.create_task(self._dismiss(stray))
            if self.is_wanted:
                tasks.create_task(self._keep())
                tasks.create_task(self._keep_telling())
            await asyncio.Event().wait()

    async def stop_all(self) -> None:
        """Ends every proxy; for a host that stops serving, once `run` has been cancelled."""
        grace = self._settings.worker_stop_grace_seconds
        await asyncio.gather(*(self._dismiss(record, grace) for record in self._of_proxies()))

    def _of_proxies(self) -> list[WorkerRecord]:
        return [record for record in self._workers.known() if record.kind == PROXY]

    async def _dismiss(self, record: WorkerRecord, grace_seconds: float | None = None) -> None:
        grace = self._settings.proxy_drain_seconds if grace_seconds is None else grace_seconds
        await self._workers.stop(record, grace_seconds=grace)
        self._workers.remove(record)

    # The one that is kept.

    async def _keep(self) -> None:
        while True:
            match self._state.phase:
                case Phase.STARTING:
                    event = await self._bring_up()
                case Phase.READY:
                    assert self._record is not None
                    event = self._ended(await self._workers.wait(self._record))
                case Phase.BACKOFF:
                    await self._clock.sleep(self._state.retry_at - self._clock.monotonic())
                    event = RetryDue()
                case Phase.FAILED | Phase.HELD | Phase.ASLEEP:
                    return
            self._advance(event)

    def _advance(self, event: Event) -> None:
        jitter = random.uniform(-JITTER_FRACTION, JITTER_FRACTION)
        self._state = step(self._state, event, self._clock.monotonic(), jitter, self._policy)
        log.info(
            "proxy_changed", phase=self._state.phase.value, base_url=self._url, reason=self._state.reason
        )
        self._tell_others()

    async def _bring_up(self) -> Event:
        try:
            if self._record is None or not self._workers.running(self._record):
                self._record = self._start()
        except (WorkerError, HostError) as error:
            return Ended(Failure(FailureKind.CRASHED, error.message))
        record = self._record
        # What an adopted one was told is from the last agent's time.
        self._changed.set()
        ended, listening, _ = await first_of(
            self._workers.wait(record), self._until_listening(record), self._clock.sleep(START_SECONDS)
        )
        if not ended.cancelled():
            return self._ended(ended.result())
        if not listening.cancelled():
            self._url = listening.result()
            self._remember_port()
            return Proven()
        await self._workers.stop(record, grace_seconds=self._settings.worker_stop_grace_seconds)
        return Ended(Failure(FailureKind.SLOW, f"it does not listen after {START_SECONDS:g} s"))

    def _start(self) -> WorkerRecord:
        if self._record is not None:
            self._workers.remove(self._record)
            self._record = None
        keys = self._keys()
        spec, files = proxy_spec(
            self._config(keys), self._label(keys), keys, routes_to_json(self._routes()), self._interpreter
        )
        return self._workers.start(f"proxy-{secrets.token_hex(4)}", spec, files)

    def _wanted(self, keys: Keys) -> ProxyConfig:
        settings = self._settings
        return ProxyConfig(
            port=settings.proxy_port,
            hold_seconds=settings.proxy_hold_seconds,
            queue_limit=settings.proxy_queue_limit,
            stall_seconds=settings.proxy_stall_seconds,
            tail_seconds=settings.proxy_tail_seconds,
            head_seconds=settings.proxy_head_seconds,
            key_digest=keys.digest(),
            version=self._version,
            reach=settings.reach,
        )

    def _label(self, keys: Keys) -> str:
        return self._wanted(keys).to_json().decode()

    def _config(self, keys: Keys) -> ProxyConfig:
        """What was wanted, on the port of last time where people have not chosen one."""
        wanted, last = self._wanted(keys), self._last_port()
        if wanted.port:
            return wanted.on_port(wanted.port, any_port=False, patience_seconds=PORT_PATIENCE_SECONDS)
        if last is not None:
            return wanted.on_port(last, any_port=True, patience_seconds=PORT_PATIENCE_SECONDS)
        return wanted.on_port(USUAL_PORT, any_port=True, patience_seconds=0)

    def _last_port(self) -> int | None:
        port = (self._memory.load() or {}).get("port")
        return port if isinstance(port, int) and 0 < port <= 65_535 else None  # noqa: PLR2004

    def _remember_port(self) -> None:
        port = int(self._url.removesuffix("/v1").rpartition(":")[2])
        try:
            if port != self._last_port():
                self._memory.save({"port": port})
        except HostError as error:
            log.warning("proxy_port_not_remembered", error=error.message)

    async def _until_listening(self, record: WorkerRecord) -> str:
        while not (url := self._url_of(record)):
            await self._clock.sleep(self._settings.model_probe_interval_seconds)
        return url

    def _url_of(self, record: WorkerRecord) -> str:
        told = self._workers.read_file(record, ENDPOINT_FILE)
        return "" if told is None else str(json.loads(told)["base_url"])

    def _ended(self, ended: WorkerExit | None) -> Ended:
        self._url = ""
        assert self._record is not None
        reason = self._workers.read_file(self._record, REASON_FILE) or b""
        return Ended(failure_of(ended, reason.decode(errors="replace").strip()))

    # What it is told.

    async def _keep_telling(self) -> None:
        """Writes the routes at each change, again and again until the disk takes them."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._try_to_tell():
                self._changed.set()
                await self._clock.sleep(self._settings.outbox_retry_first_seconds)

    def _try_to_tell(self) -> bool:
        """Whether every proxy that runs knows the routes, those that only finish their streams, too."""
        routes = routes_to_json(self._routes())
        try:
            for record in filter(self._workers.running, self._of_proxies()):
                if self._workers.read_file(record, ROUTES_FILE) != routes:
                    self._workers.write_file(record, ROUTES_FILE, routes)
                    log.info("routes_written", worker=record.worker_id)
        except WorkerError as error:
            log.warning("routes_not_written", error=error.message)
            return False
        return True

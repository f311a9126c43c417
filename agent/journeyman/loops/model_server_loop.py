"""Keeps one model server for each model that is wanted, and knows where each answers.

Wanted are the models of the settings, and those that the fleet asks for, which come and go.  Servers are
workers, so they outlive the agent: ending this loop leaves them running, and the next one adopts those that
were started for the same configuration.  The life of each is in `serving/keeper.py`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from journeyman.core.completion import KEY_FILE
from journeyman.core.gates.ladder import Action, Do, Job
from journeyman.core.gates.rules import Level
from journeyman.core.model_server import Phase, begin
from journeyman.core.proxy.routes import Route
from journeyman.core.worker_specs import CONFIG_LABEL, MODEL_LABEL, MODEL_SERVER, Interpreter
from journeyman.ports import Clock, Endpoint, InferenceProbe, JsonObject, ModelStore, Workers
from journeyman.serving.keeper import Keeper, Surroundings
from journeyman.serving.neighbours import Neighbours
from journeyman.serving.places import Places
from journeyman.serving.seen_traffic import SeenTraffic
from journeyman.serving.server import Server
from journeyman.serving.starting import Starter
from journeyman.settings import Inference, Settings
from journeyman_updater.contract import WorkerExit, WorkerRecord

log = structlog.get_logger(__name__)

LAST_LINES = 10


class ModelServerLoop:
    """The model servers of this host.

    Args:
        workers: the processes.
        store: the models.
        probe: proves that a server generates.
        clock: time.
        settings: the models to serve, the preferred one first; timeouts and grace periods.
        interpreter: the Python that runs the servers.
        neighbours: what the servers have to do with the rest of the agent.
    """

    def __init__(
        self,
        *,
        workers: Workers,
        store: ModelStore,
        probe: InferenceProbe,
        clock: Clock,
        settings: Settings,
        interpreter: Interpreter,
        neighbours: Neighbours,
    ) -> None:
        self._workers = workers
        self._settings = settings
        self._clock = clock
        self._probe = probe
        self._tell_others = neighbours.changed
        self._neighbours = replace(neighbours, changed=self._changed)
        self._traffic = SeenTraffic(neighbours, clock, has_proxy=settings.proxy)
        self._asking: asyncio.Task[None] | None = None
        self._change = asyncio.Event()
        self._ending: set[asyncio.Future[WorkerExit | None]] = set()
        self._room = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self._starter = Starter(workers, store, interpreter)
        places = Places(lambda: [keeper for keeper, _ in self._running()], clock, settings)
        self._surroundings = Surroundings(
            self._neighbours, self._place_free, self._memory_free, self._given_back, places.made_for
        )
        self._keepers = [self._keeper(wanted) for wanted in settings.served()]
        self._group: asyncio.TaskGroup | None = None
        self._keeping: dict[Keeper, asyncio.Task[None]] = {}

    def _keeper(self, wanted: Inference) -> Keeper:
        return Keeper(
            Server(wanted, begin(self._clock.monotonic())),
            workers=self._workers,
            starter=self._starter,
            probe=self._probe,
            clock=self._clock,
            settings=self._settings,
            surroundings=self._surroundings,
        )

    def servers(self) -> Sequence[Server]:
        """All of them, the preferred one first, to look at."""
        return self._servers

    @property
    def _servers(self) -> list[Server]:
        return [keeper.server for keeper in self._keepers]

    def want(self, others: Sequence[Inference]) -> None:
        """From now on serves these, too, in place of those that it was given last.

        A server that is no longer wanted gets nothing new, finishes what it has and ends.  One that is wanted
        in another way does the same before its successor is loaded, unless its process is just what the
        successor needs.  All others are left alone.

        Args:
            others: with nothing left open, as `Settings.settled` has it; their names are neither those of
                the settings nor the same twice.
        """
        wanted = [*self._settings.served(), *others]
        former = {keeper.server.wanted: keeper for keeper in self._keepers}
        if list(former) == wanted:
            return
        self._keepers = [former.pop(each) if each in former else self._keeper(each) for each in wanted]
        if self._group is not None:
            self._replace(list(former.values()))
        self._changed()

    def _replace(self, former: Sequence[Keeper]) -> None:
        """Lets those go, and begins with the keepers that are new."""
        records = [record for keeper in former if (record := self._let_go(keeper)) is not None]
        new = [keeper for keeper in self._keepers if keeper not in self._keeping]
        for record in self._adopt_of(records, new):
            self._see_off(record)
        for keeper in new:
            self._keep(keeper)

    def _let_go(self, keeper: Keeper) -> WorkerRecord | None:
        """Keeps it no longer; returns the worker that it leaves."""
        self._keeping.pop(keeper).cancel()
        # Whoever waits for it to give way would wait for ever.
        keeper.use.begin()
        log.info("model_server_dropped", model=keeper.server.model)
        return keeper.server.record

    def _keep(self, keeper: Keeper) -> None:
        assert self._group is not None
        keeping = self._group.create_task(keeper.keep(), name=f"keep {keeper.server.model}")
        self._keeping[keeper] = keeping

    def _see_off(self, record: WorkerRecord) -> None:
        """Lets a worker finish what it has; nobody is loaded into its memory before it has gone."""
        assert self._group is not None
        leaving = self._group.create_task(self._gone(record))
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def ready_models(self) -> list[str]:
        """The models that answer now, the preferred one first, then those that have to be woken for it."""
        awake = [server.model for server in self._servers if server.endpoint is not None]
        return [*awake, *(one.model for one in self._servers if one.sleeps and one.model not in awake)]

    def chat_models(self) -> list[str]:
        """Those of `ready_models` that talk: a task would get no answer from an embedder."""
        talking = {server.model for server in self._servers if server.wanted.mode == "chat"}
        return [model for model in self.ready_models() if model in talking]

    def context_tokens(self) -> int:
        """The longest context of a chat model that can be asked; 0 if none can, or nobody knows."""
        # Tasks talk: the context of an embedder would promise them what no model of theirs has.
        talking = [one for one in self._servers if one.can_be_asked and one.wanted.mode == "chat"]
        known = [one.context_tokens for one in talking]
        return max(known, default=0)

    def endpoint_for(self, model: str) -> Endpoint | None:
        """Where that model answers, or None while it does not."""
        endpoints = (one.endpoint for one in self._servers if one.model == model and not one.is_leaving)
        return next((endpoint for endpoint in endpoints if endpoint is not None), None)

    def wake(self, model: str) -> bool:
        """Starts that model if it sleeps.  Returns whether it does, or is on its way from its sleep."""
        return any(keeper.wake() for keeper in self._keepers if keeper.server.model == model)

    def start_seconds(self, model: str) -> float:
        """How long that model may take to its first token, once it has been woken."""
        starts = [server.start_seconds(self._settings) for server in self._servers if server.model == model]
        return max(starts, default=self._settings.model_start_timeout_seconds)

    def snapshot(self) -> list[JsonObject]:
        """What people are shown of each server, the preferred model first; no key is among it."""
        shown = self._neighbours.room.shown
        return [
            {**server.shown(), "memory": shown(server.config), "lastWords": self._last_words(server)}
            for server in self._servers
        ]

    def _last_words(self, server: Server) -> list[str]:
        """The end of the log of one that is in trouble, without its key: a program may print that."""
        if server.record is None or server.state.phase is Phase.READY:
            return []
        key = (self._workers.read_file(server.record, KEY_FILE) or b"").decode(errors="replace").strip()
        words = self._workers.last_words(server.record)
        return [line for line in (words.replace(key, "***") if key else words).splitlines() if line][
            -LAST_LINES:
        ]

    def routes(self) -> list[Route]:
        """Where the proxy finds each model, the preferred one first.

        A server that was adopted is not taken from the clients that it serves until it has been proven anew.
        """
        return [server.route(self._key_file_of(server)) for server in self._servers]

    def _key_file_of(self, server: Server) -> str:
        if server.record is None:
            return str(server.wanted.key_file or "")
        return str(self._workers.path_of(server.record, KEY_FILE))

    def adopt(self) -> None:
        """Takes up the servers that run for the same models with the same settings.

        Needs no network.  `run` proves them before they count as ready.
        """
        self._adopt_of(self._of_model_servers(), self._keepers)

    def _adopt_of(self, records: Sequence[WorkerRecord], keepers: Sequence[Keeper]) -> list[WorkerRecord]:
        """Gives each keeper the worker that runs for just what it wants; returns those that nobody wants."""
        for server in (keeper.server for keeper in keepers):
            server.config = self._starter.config_if_here(server) if server.is_ours else None
        left = []
        for record in records:
            label = record.labels.get(CONFIG_LABEL)
            keeper = next((keeper for keeper in keepers if keeper.server.fits(label)), None)
            if keeper is not None and self._workers.running(record):
                keeper.adopt(record)
            else:
                left.append(record)
        return left

    async def run(self) -> None:
        """Ends servers that nobody wants, and keeps the others until it is cancelled: they go on then.

        Those that leave finish what they have, and no other one is loaded into their memory before.
        """
        adopted = [server.record for server in self._servers]
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            try:
                for record in self._of_model_servers():
                    if record not in adopted:
                        self._see_off(record)
                for keeper in self._keepers:
                    self._keep(keeper)
                # Without any server, and when all have failed, there is nothing to do but to go on living.
                if self._settings.proxy:
                    await self._hear()
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def _hear(self) -> None:
        """Wakes the servers for which the proxy holds requests.  Asks nobody while all are awake."""
        while True:
            if not self._asleep():
                self._change.clear()
                await self._change.wait()
                continue
            wanted = await self._neighbours.wanted()
            # Looked up only now, as others may have fallen asleep meanwhile.
            woken = [keeper for keeper in self._asleep() if keeper.server.model in wanted]
            for keeper in woken:
                keeper.wake()
            if not woken:
                # There may be no proxy yet, or one that has not been told yet who is awake.
                await self._clock.sleep(self._settings.outbox_retry_first_seconds)

    def _asleep(self) -> list[Keeper]:
        return [keeper for keeper in self._keepers if keeper.server.state.phase is Phase.ASLEEP]

    def _changed(self) -> None:
        self._change.set()
        self._tell_others()

    async def stop_all(self) -> None:
        """Ends all servers; for a host that stops serving, once `run` has been cancelled."""
        await asyncio.gather(*map(self._stop, self._of_model_servers()))

    def _of_model_servers(self) -> list[WorkerRecord]:
        return [record for record in self._workers.known() if record.kind == MODEL_SERVER]

    async def _place_free(self, model: str) -> None:
        """Returns once those that leave have gone, and the last server of that model with them."""
        if self._leaving:
            await asyncio.wait(self._leaving)
        for record in self._of_model_servers():
            if record.labels.get(MODEL_LABEL) == model:
                await self._drain(record)

    async def _memory_free(self) -> None:
        while self._neighbours.memory() is not Level.OPEN:
            await self._room.wait()

    def _given_back(self) -> None:
        for keeper in self._keepers:
            keeper.memory_given_back()

    def look(self, then: Callable[[], None]) -> None:
        """Takes note of a new verdict: servers that were ended for memory come back when its gate is open.

        Args:
            then: called when `work` can tell who is used: at once, unless that matters and the proxy has to
                be asked; soon in any case.
        """
        if self._neighbours.memory() is Level.OPEN:
            self._room.set()
            self._room = asyncio.Event()
        if self._group is None or self._neighbours.memory() <= Level.HOLD or not self._running():
            then()
        elif self._asking is None or self._asking.done():
            self._asking = self._group.create_task(self._ask(then), name="who is used")

    async def _ask(self, then: Callable[[], None]) -> None:
        await self._traffic.ask()
        then()

    def doubt(self) -> None:
        """The host has slept: servers that listen may have died inside all the same, so each is asked."""
        for keeper in self._keepers:
            keeper.doubt()

    # The ladder; see `loops/ladder_loop.py`.

    def work(self) -> list[Job]:
        """The servers, while the memory gate asks for more than no new work: they answer to no other one."""
        if self._neighbours.memory() <= Level.HOLD:
            return []
        return [
            Job(
                record.worker_id, keeper.server.state.since, self._workers.usage(record).ram_bytes,
                suspendable=False, retriable=False, idle=not self._traffic.is_used(keeper.server.model),
                gates=frozenset({"memory"}), rank=keeper.server.rank,
                protected=keeper.server.wanted.eviction_protection,
            )
            for keeper, record in self._running()
        ]  # fmt: skip

    def carry_out(self, action: Action) -> None:
        """Ends one server; it comes back when the memory gate is open again."""
        running = ((keeper, record) for keeper, record in self._running())
        found = next((pair for pair in running if pair[1].worker_id == action.job_id), None)
        if found is None:
            return
        keeper, record = found
        keeper.make_room(action.reason)
        if action.do is Do.KILL:
            self._workers.signal(record, signal.SIGKILL)
            return
        ending = asyncio.ensure_future(self._workers.stop(record, grace_seconds=action.grace_seconds))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _running(self) -> list[tuple[Keeper, WorkerRecord]]:
        return [
            (keeper, record)
            for keeper in self._keepers
            if (record := keeper.server.record) is not None and self._workers.running(record)
        ]

    async def _gone(self, record: WorkerRecord) -> None:
        await self._drain(record)
        self._given_back()

    async def _drain(self, record: WorkerRecord) -> None:
        await self._end(record, self._settings.model_drain_seconds)

    async def _stop(self, record: WorkerRecord) -> None:
        await self._end(record, self._settings.worker_stop_grace_seconds)

    async def _end(self, record: WorkerRecord, grace_seconds: float) -> None:
        await self._workers.stop(record, grace_seconds=grace_seconds)
        self._workers.remove(record)

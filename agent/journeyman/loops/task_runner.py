"""Runs claimed tasks as workers that outlive the agent, and turns what they leave into endings.

A run is known by its worker's record alone: an agent that starts finds the records, goes on watching what
lives, and delivers what has ended.  It needs no network for that, as ownership is proved at delivery.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

import structlog

from journeyman.core.completion import RESULT_FILE, Completion, CompletionRequest
from journeyman.core.delivery import Delivery, claim_from_labels, claim_id, claim_to_labels
from journeyman.core.endings import answered, broken, refused
from journeyman.core.freeform import Question, Refusal, ask
from journeyman.core.gates.ladder import Action, Do, Job
from journeyman.core.recovery import Recovery, recover
from journeyman.core.task_patches import Ending
from journeyman.core.task_plan import Claim
from journeyman.core.worker_specs import FREEFORM, Interpreter, freeform_spec
from journeyman.errors import HostError, NotFoundError, WorkerError
from journeyman.model.agent import AgentPersona
from journeyman.model.agentic_task import AgenticTask, FailureReason, TaskKind
from journeyman.model.resources import AGENTS
from journeyman.ports import Clock, Collection, ControlPlane, Endpoint, Workers
from journeyman.settings import Settings
from journeyman_updater.contract import WorkerExit, WorkerRecord

log = structlog.get_logger(__name__)

TASK_FILE = "task.json"
PERSONA_FILE = "persona.json"
ATTEMPT = "attempt"


class Models(Protocol):
    """The model servers of this host."""

    def chat_models(self) -> Sequence[str]:
        """The models that talk now, the preferred one first, then those that have to be woken for it."""
        ...

    def endpoint_for(self, model: str) -> Endpoint | None:
        """Where that model answers, or None while it does not."""
        ...

    def wake(self, model: str) -> bool:
        """Starts that model if it sleeps.  Returns whether it does, or is on its way from its sleep."""
        ...

    def start_seconds(self, model: str) -> float:
        """How long that model may take to its first token, once it has been woken."""
        ...


Start = Callable[[Endpoint], Awaitable[None]]


@dataclass
class Run:
    """One claimed task and its worker."""

    claim: Claim
    record: WorkerRecord
    watching: asyncio.Task[None] | None = None
    shed: bool = False
    stopping: asyncio.Task[None] | None = None

    @property
    def attempt(self) -> int:
        return int(self.record.labels.get(ATTEMPT, "1"))


class TaskRunner:
    """Keeps the runs of this agent.

    Args:
        plane: the control plane, for the persona of a task.
        workers: the processes.
        models: the model servers.
        clock: time.
        settings: grace periods.
        interpreter: the Python that runs workers.
        deliver: takes an ending durably.
        changed: called whenever a run has begun or ended.
    """

    def __init__(
        self,
        *,
        plane: ControlPlane,
        workers: Workers,
        models: Models,
        clock: Clock,
        settings: Settings,
        interpreter: Interpreter,
        deliver: Callable[[Delivery], None],
        changed: Callable[[], None],
    ) -> None:
        self._plane = plane
        self._workers = workers
        self._models = models
        self._clock = clock
        self._settings = settings
        self._interpreter = interpreter
        self._deliver = deliver
        self._changed = changed
        self._runs: dict[Claim, Run] = {}
        self._waiting: dict[Claim, asyncio.Task[None]] = {}

    def claims(self) -> list[Claim]:
        """The claims that run here, or will as soon as their model is awake."""
        return [*self._runs, *self._waiting]

    def runs(self) -> list[Run]:
        """The runs of this moment, for people who ask."""
        return list(self._runs.values())

    def can_start(self, task: AgenticTask) -> bool:
        """Whether a model answers; what needs none can start, if only to be refused with a reason."""
        waits_for_model = bool(self._settings.served()) and task.spec.kind is TaskKind.FREEFORM
        return not waits_for_model or bool(self._models.chat_models())

    def adopt(self) -> None:
        """Takes up the runs of the agent before this one.  Needs no network."""
        for record in self._workers.known():
            if record.kind != FREEFORM:
                continue
            try:
                claim = claim_from_labels(record.labels)
            except ValueError as error:
                log.warning("worker_without_claim_ignored", worker=record.worker_id, error=str(error))
                continue
            log.info("worker_adopted", worker=record.worker_id, task=claim.name)
            self._watch(Run(claim, record))

    async def begin(self, task: AgenticTask, claim: Claim) -> None:
        """Starts the task's worker, or ends the task at once if it cannot run here."""
        persona = await self._persona_of(task)
        if isinstance(persona, Refusal):
            await self._refuse(claim, persona)
        else:
            await self._start(task, persona, claim, attempt=1)

    async def cancel(self, claim: Claim) -> None:
        """Stops the task's worker and forgets it; nothing is written."""
        waiting = self._waiting.pop(claim, None)
        if waiting is not None:
            waiting.cancel()
            self._changed()
        run = self._runs.pop(claim, None)
        if run is None:
            return
        if run.watching is not None:
            run.watching.cancel()
        await self._workers.stop(run.record, grace_seconds=self._settings.worker_stop_grace_seconds)
        self._workers.remove(run.record)
        self._changed()

    def work(self) -> list[Job]:
        """What runs, with what it uses now, for the ladder.

        It cannot stand still: the model server would go on generating for it.  It can run again elsewhere.
        """
        jobs = []
        for run in self._runs.values():
            usage = self._workers.usage(run.record)
            started = datetime.fromisoformat(run.record.started_at).timestamp()
            jobs.append(
                Job(run.record.worker_id, started, usage.ram_bytes, usage.written_bytes, suspendable=False)
            )
        return jobs

    def carry_out(self, action: Action) -> None:
        """Begins to end a run, which is handed back once its worker has ended; returns at once."""
        for run in self._runs.values():
            if run.record.worker_id != action.job_id:
                continue
            run.shed = True
            if action.do is Do.KILL:
                self._workers.signal(run.record, signal.SIGKILL)
            elif action.do is Do.TERMINATE:
                run.stopping = asyncio.create_task(self._stop(run.record, action.grace_seconds))

    async def _stop(self, record: WorkerRecord, grace_seconds: float) -> None:
        await self._workers.stop(record, grace_seconds=grace_seconds)

    async def let_go(self) -> None:
        """Stops watching; the workers go on, for the next agent to adopt."""
        tasks = [task for run in self._runs.values() for task in (run.watching, run.stopping)]
        watching = [*self._waiting.values(), *(task for task in tasks if task is not None)]
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    async def _persona_of(self, task: AgenticTask) -> AgentPersona | Refusal | None:
        if task.spec.agent_ref is None:
            return None
        name = task.spec.agent_ref.name
        personas = Collection(AGENTS.group, AGENTS.version, AGENTS.plural, task.metadata.namespace)
        try:
            return AgentPersona.from_wire(await self._plane.get(personas.named(name)))
        except NotFoundError:
            return Refusal(FailureReason.AGENT_NOT_FOUND, f"there is no Agent {name}")

    async def _start(
        self, task: AgenticTask, persona: AgentPersona | None, claim: Claim, *, attempt: int
    ) -> None:
        question = ask(task, persona, self._models.chat_models())
        if isinstance(question, Refusal):
            await self._refuse(claim, question)
            return
        endpoint = self._models.endpoint_for(question.model)
        start = partial(self._spawn, task, persona, claim, question, attempt)
        if endpoint is None and self._models.wake(question.model):
            self._waiting[claim] = asyncio.create_task(self._once_awake(claim, question.model, start))
            return
        await self._start_at(endpoint, claim, question.model, start)

    async def _start_at(self, endpoint: Endpoint | None, claim: Claim, model: str, start: Start) -> None:
        if endpoint is None:
            reason = FailureReason.INFERENCE_SERVICE_UNAVAILABLE
            await self._refuse(claim, Refusal(reason, f"model {model} does not answer any more"))
            return
        await start(endpoint)

    async def _once_awake(self, claim: Claim, model: str, start: Start) -> None:
        """Starts a task when its model is awake, or ends it when that model cannot be had after all."""
        deadline = self._clock.monotonic() + self._models.start_seconds(model)
        while (endpoint := self._models.endpoint_for(model)) is None and self._models.wake(model):
            if self._clock.monotonic() >= deadline:
                break
            await self._clock.sleep(self._settings.model_probe_interval_seconds)
        await self._start_at(endpoint, claim, model, start)
        del self._waiting[claim]
        self._changed()

    async def _spawn(
        self,
        task: AgenticTask,
        persona: AgentPersona | None,
        claim: Claim,
        question: Question,
        attempt: int,
        endpoint: Endpoint,
    ) -> None:
        labels = {**claim_to_labels(claim), ATTEMPT: str(attempt)}
        request = CompletionRequest(
            base_url=endpoint.base_url,
            model=endpoint.model or question.model,
            system=question.system,
            prompt=question.prompt,
            temperature=question.temperature,
            max_tokens=question.max_tokens,
            timeout_seconds=question.timeout_seconds,
        )
        spec, files = freeform_spec(request, endpoint.api_key, self._interpreter, labels)
        files[TASK_FILE] = _json(task.to_wire())
        files[PERSONA_FILE] = _json(None if persona is None else persona.to_wire())
        try:
            record = self._workers.start(f"task-{claim_id(claim)}-{attempt}", spec, files)
        except WorkerError as error:
            log.warning("worker_start_failed", task=task.reference, error=str(error))
            await self._end(claim, broken(str(error), self._server_time()))
            return
        log.info("worker_started", worker=record.worker_id, task=task.reference)
        self._watch(Run(claim, record))

    def _watch(self, run: Run) -> None:
        self._runs[run.claim] = run
        run.watching = asyncio.create_task(self._see_it_end(run), name=f"watch {run.record.worker_id}")
        self._changed()

    async def _see_it_end(self, run: Run) -> None:
        """Waits for the worker, and does what the recovery table says about what it left."""
        ended = await self._workers.wait(run.record)
        completion = self._read_completion(run.record)
        decision = recover(
            alive=False,
            # One that we ended for a gate says nothing about the task, so it counts as no attempt.
            exit_known=ended is not None and not run.shed,
            has_result=completion is not None,
            attempt=run.attempt,
        )
        log.info("worker_ended", worker=run.record.worker_id, how=_how(ended), then=decision.value)
        now = self._server_time()
        if completion is not None:
            model = run.record.labels.get("model", "")
            await self._end(run.claim, answered(completion, model=model, now=now))
        elif decision is Recovery.FAIL:
            why = f"the worker ended {run.attempt} times without a result, at last {_how(ended)}"
            await self._end(run.claim, broken(why, now))
        again = self._read_task(run.record) if decision is Recovery.RUN_AGAIN else None
        # Whatever is to be kept is in the outbox by now.  A hand-back needs no act of ours either: the
        # next look at the tasks finds a claim without a run.
        self._workers.remove(run.record)
        del self._runs[run.claim]
        self._changed()
        if again is not None:
            task, persona = again
            await self._start(task, persona, run.claim, attempt=run.attempt + 1)

    def _read_completion(self, record: WorkerRecord) -> Completion | None:
        data = self._workers.read_file(record, RESULT_FILE)
        try:
            return None if data is None else Completion.from_json(data)
        except ValueError as error:
            log.warning("unreadable_result", worker=record.worker_id, error=str(error))
            return None

    def _read_task(self, record: WorkerRecord) -> tuple[AgenticTask, AgentPersona | None]:
        """What the worker was started for, as an agent may have come and gone since."""
        task = json.loads(self._workers.read_file(record, TASK_FILE) or b"null")
        persona = json.loads(self._workers.read_file(record, PERSONA_FILE) or b"null")
        return (
            AgenticTask.from_wire(task),
            None if persona is None else AgentPersona.from_wire(persona),
        )

    async def _refuse(self, claim: Claim, refusal: Refusal) -> None:
        log.info("task_refused", task=claim.name, reason=refusal.reason.value, message=refusal.message)
        await self._end(claim, refused(refusal, self._server_time()))

    async def _end(self, claim: Claim, ending: Ending) -> None:
        """Keeps the ending; with a full disk that takes until there is room, and nothing is lost."""
        while True:
            try:
                self._deliver(Delivery(claim, ending))
            except HostError as error:
                log.warning("ending_not_kept_yet", task=claim.name, error=str(error))
                await self._clock.sleep(self._settings.outbox_retry_max_seconds)
            else:
                return

    def _server_time(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self._plane.clock_offset_seconds())


def _how(ended: WorkerExit | None) -> str:
    if ended is None:
        return "in a way that nobody saw"
    return f"with exit code {ended.code}" if ended.code is not None else f"by signal {ended.signal}"


def _json(value: dict[str, Any] | None) -> bytes:
    return json.dumps(value).encode()

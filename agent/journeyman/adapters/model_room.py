"""Whether this host has memory for a model server: by its file, what it took before, and what runs now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from journeyman.adapters.model_reading import facts_at
from journeyman.core import model_allocation
from journeyman.core.folder_model import cache_type
from journeyman.core.model_admission import HostRoom, Refusal, RunningServer, default_fraction, refusal
from journeyman.core.model_allocation import Allocation, Need
from journeyman.core.model_memory import MemoryEstimate, ServerLoad, estimate
from journeyman.core.quantities import bytes_text
from journeyman.core.server_config import ServerConfig
from journeyman.core.speed import fingerprint
from journeyman.core.worker_specs import CONFIG_LABEL, MODEL_SERVER
from journeyman.errors import HostError, JourneymanError
from journeyman.model.model_file import ModelFacts
from journeyman.ports import Document, JsonObject, Memory, Workers
from journeyman_updater.contract import WorkerRecord

# Of a prompt that mlx_lm computes at a time, by its --help (0.32).
PREFILL_TOKENS = 2048
log = structlog.get_logger(__name__)


class ModelRoom:
    """Judges servers before they are started.

    A model whose memory cannot be told is let through: what its server takes then is known the next time.

    Args:
        workers: the processes.
        taken: where it is kept what servers took.
        memory: of the host, now.
        kept_bytes: what admission leaves to the host.
        reserved_bytes: what was granted to other work and is not in use yet.
        fraction: of the memory that all servers together may have; None for `default_fraction`.
        has_own_memory: whether layers on the GPU lie in memory of its own, of which nothing is known here.
    """

    def __init__(
        self,
        *,
        workers: Workers,
        taken: Document,
        memory: Callable[[], Memory],
        kept_bytes: int,
        reserved_bytes: Callable[[], float],
        fraction: float | None,
        has_own_memory: Callable[[], bool],
    ) -> None:
        self._workers = workers
        self._memory = memory
        self._kept_bytes = kept_bytes
        self._reserved_bytes = reserved_bytes
        self._fraction = fraction
        self._has_own_memory = has_own_memory
        self._estimates: dict[str, MemoryEstimate | None] = {}
        self._document = taken
        self._taken = model_allocation.from_json(taken.load())

    async def refuse(self, config: ServerConfig) -> Refusal | None:
        """Why that server may not start now; None if it may.

        Who starts it without awaiting anything in between cannot be overtaken by another one.
        """
        running = [
            record
            for record in self._workers.known()
            if record.kind == MODEL_SERVER and self._workers.running(record)
        ]
        labels = [record.labels.get(CONFIG_LABEL, "") for record in running]
        await asyncio.to_thread(self._learn, [config.to_json().decode(), *labels])
        need = self._need(config.to_json().decode())
        if need is None:
            return None
        memory = self._memory()
        host = HostRoom(
            memory.total_bytes, memory.available_bytes, self._kept_bytes, int(self._reserved_bytes())
        )
        servers = []
        for record, label in zip(running, labels, strict=True):
            expected = self._need(label)
            total = 0 if expected is None else expected.total_bytes
            servers.append(RunningServer(total, self._workers.usage(record).ram_bytes))
        fraction = self._fraction or default_fraction(memory.total_bytes)
        found = refusal(need, host, servers, fraction)
        log.info("model_server_judged", model=config.model, needs=need.total_bytes, fits=found is None)
        return found

    async def settled(self, record: WorkerRecord) -> None:
        """See `Room.settled`."""
        label = record.labels.get(CONFIG_LABEL, "")
        # A log may have some megabytes.
        found = await asyncio.to_thread(self._allocation_of, record, label)
        known = self._taken.get(_key(label))
        if found is None or (better := model_allocation.better_known(known, found)) == known:
            return
        # Taken out first: what was learned last is forgotten last.
        self._taken.pop(_key(label), None)
        self._taken[_key(label)] = better
        self._tell(record, self._estimates.get(label), better)
        try:
            self._document.save(model_allocation.to_json(self._taken))
        except HostError as error:
            log.warning("model_memory_not_kept", error=error.message)

    def shown(self, config: ServerConfig | None) -> JsonObject:
        """See `Room.shown`."""
        label = "" if config is None else config.to_json().decode()
        expected, taken = self._estimates.get(label), self._taken.get(_key(label))
        return {
            "estimatedBytes": None if expected is None else expected.total_bytes,
            "allocatedBytes": None if taken is None else taken.total_bytes,
        }

    def _allocation_of(self, record: WorkerRecord, label: str) -> Allocation | None:
        self._learn([label])
        resident = self._workers.usage(record).ram_bytes
        return model_allocation.allocation_of(self._workers.log(record), resident)

    def _need(self, label: str) -> Need | None:
        return model_allocation.need_of(self._estimates.get(label), self._taken.get(_key(label)))

    def _tell(self, record: WorkerRecord, expected: MemoryEstimate | None, taken: Allocation) -> None:
        if expected is not None and model_allocation.is_underestimated(expected, taken):
            log.warning(
                "model_memory_underestimated",
                worker=record.worker_id,
                expected=expected.explanation(),
                took=bytes_text(taken.total_bytes),
            )
        else:
            log.info("model_memory_learned", worker=record.worker_id, total_bytes=taken.total_bytes)

    def _learn(self, labels: list[str]) -> None:
        """Estimates what is not known yet; reading a header with a large vocabulary takes a while."""
        for label in labels:
            if label not in self._estimates:
                self._estimates[label] = self._estimate(label)

    def _estimate(self, label: str) -> MemoryEstimate | None:
        try:
            config = ServerConfig.from_json(label.encode())
            if config.gpu_layers != 0 and self._has_own_memory():
                return None
            facts = facts_at(Path(config.path))
            return estimate(facts, mlx_load(facts, config) if config.runtime == "mlx" else load_of(config))
        except (JourneymanError, ValueError) as error:
            log.info("model_memory_unknown", error=str(error))
            return None


def _key(label: str) -> str:
    return fingerprint(label.encode())


def mlx_load(facts: ModelFacts, config: ServerConfig) -> ServerLoad:
    """The same of a server of MLX, which computes on more of a prompt at a time.

    It takes prompts of any length, and remembers old ones; only the context that it was given is counted.
    """
    draft = Path(config.draft_path)
    return ServerLoad(
        context_tokens=config.context_tokens,
        slots=config.parallel,
        cache_type_k=cache_type(facts),
        cache_type_v=cache_type(facts),
        batch_tokens=PREFILL_TOKENS,
        extra_bytes=facts_at(draft).tensor_bytes if config.draft_path else 0,
    )


def load_of(config: ServerConfig) -> ServerLoad:
    """What of a configuration has an effect on the memory; what was given as extra arguments is not read."""
    draft = Path(config.draft_path)
    return ServerLoad(
        context_tokens=config.context_tokens,
        slots=config.parallel,
        cache_type_k=config.cache_type_k or "f16",
        cache_type_v=config.cache_type_v or "f16",
        flash_attention=config.flash_attention != "off",
        batch_tokens=config.micro_batch_tokens or ServerLoad.batch_tokens,
        extra_bytes=draft.stat().st_size if config.draft_path and draft.is_file() else 0,
    )

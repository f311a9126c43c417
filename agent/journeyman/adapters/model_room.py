"""Whether this host has memory for a model server: estimates from the files, and what runs, as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import structlog

from journeyman.adapters.model_reading import facts_at
from journeyman.core.folder_model import cache_type
from journeyman.core.model_admission import HostRoom, Refusal, RunningServer, default_fraction, refusal
from journeyman.core.model_memory import MemoryEstimate, ServerLoad, estimate
from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import CONFIG_LABEL, MODEL_SERVER
from journeyman.errors import JourneymanError
from journeyman.model.model_file import ModelFacts
from journeyman.ports import Memory, Workers

# Of a prompt that mlx_lm computes at a time, by its --help (0.32).
PREFILL_TOKENS = 2048
log = structlog.get_logger(__name__)


class ModelRoom:
    """Judges servers before they are started.

    A model whose memory cannot be told is let through: its runtime will tell.

    Args:
        workers: the processes.
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
        need = self._estimates.get(config.to_json().decode())
        if need is None:
            return None
        memory = self._memory()
        host = HostRoom(
            memory.total_bytes, memory.available_bytes, self._kept_bytes, int(self._reserved_bytes())
        )
        servers = []
        for record, label in zip(running, labels, strict=True):
            expected = self._estimates.get(label)
            total = 0 if expected is None else expected.total_bytes
            servers.append(RunningServer(total, self._workers.usage(record).ram_bytes))
        fraction = self._fraction or default_fraction(memory.total_bytes)
        found = refusal(need, host, servers, fraction)
        log.info("model_server_judged", model=config.model, needs=need.total_bytes, fits=found is None)
        return found

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
        extra_bytes=draft.stat().st_size if config.draft_path and draft.is_file() else 0,
    )

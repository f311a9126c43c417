"""One model that is to be served: what is known of its server at this moment, and how others are told."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.core.model_precedence import RANKS
from journeyman.core.model_server import Phase, ServerState, start_seconds
from journeyman.core.proxy.routes import Route, RouteState
from journeyman.core.runtimes import mlx
from journeyman.core.server_config import ServerConfig
from journeyman.ports import Endpoint, JsonObject
from journeyman.settings import Inference, Settings
from journeyman_updater.contract import WorkerRecord

EXTERNAL = "external"
# Runtimes that call whatever they serve by one name.
UPSTREAM_NAMES = {"mlx": mlx.UPSTREAM_MODEL}


@dataclass
class Server:
    """One model, its server, and where that answers.

    Attributes:
        wanted: what the settings say.
        state: see `core/model_server.py`.
        config: what the server is started for; None until the model is here, and for one that is not ours.
        trained_tokens: the longest context that its model was trained for; 0 if nobody knows.
        weights_bytes: of the files that it loads; 0 if nobody knows.
        record: its worker; an ended one is kept until the next start, as its logs say why it ended.
        endpoint: set exactly while it is READY.
        adopted_endpoint: where it answered under the last agent, until this one has proven it.
        progress: what is being done to obtain the model, or why it is not proven yet.
        is_leaving: whether it finishes what it has, and gets nothing new.
        sleeps: whether it is not there, or on its way, only because nobody has asked for it.
    """

    wanted: Inference
    state: ServerState
    config: ServerConfig | None = None
    trained_tokens: int = 0
    weights_bytes: int = 0
    record: WorkerRecord | None = None
    endpoint: Endpoint | None = None
    adopted_endpoint: Endpoint | None = None
    progress: str = ""
    is_leaving: bool = False
    sleeps: bool = False

    @property
    def model(self) -> str:
        return self.wanted.shown_name if self.config is None else self.config.model

    @property
    def upstream_model(self) -> str:
        """The name that the server itself knows."""
        return UPSTREAM_NAMES.get(self.wanted.runtime) or self.wanted.upstream_model or self.model

    @property
    def context_tokens(self) -> int:
        """Of each slot; 0 if nobody knows.  llama.cpp cuts it to what the model was trained for.

        Not where that is stretched, as whoever says so wants more than that.
        """
        wanted = self.wanted.context_tokens or 0
        is_cut = self.trained_tokens and self.wanted.rope_scaling is None
        return min(wanted, self.trained_tokens) if is_cut else wanted

    @property
    def is_ours(self) -> bool:
        """Whether we start and end it, or only watch it."""
        return self.wanted.runtime != EXTERNAL

    @property
    def is_on_demand(self) -> bool:
        """Whether it is started only when somebody asks for it."""
        return self.wanted.start == "on_demand"

    @property
    def rank(self) -> int:
        """Who has the lower one goes first when memory is short."""
        return RANKS[self.wanted.priority]

    @property
    def gives_way(self) -> bool:
        """Whether it may be ended for another model that somebody asks for."""
        return self.is_on_demand and not self.wanted.eviction_protection

    @property
    def can_be_asked(self) -> bool:
        """Whether it answers, if only after it has been woken."""
        return self.endpoint is not None or self.sleeps

    def start_seconds(self, settings: Settings) -> float:
        """How long it may take from its start to its first token."""
        at_least, disk = settings.model_start_timeout_seconds, settings.model_load_bytes_per_second
        return start_seconds(at_least, self.weights_bytes, disk)

    def served(self) -> bytes:
        """What it serves and how: the same text for the same configuration, whichever agent asks."""
        told = f"{self.wanted.url} {self.upstream_model}".encode()
        return told if self.config is None else self.config.to_json()

    def fits(self, wanted: str | None) -> bool:
        """Whether a worker that was started for that configuration is the one that it lacks."""
        return self.record is None and self.config is not None and self.config.to_json().decode() == wanted

    def route(self, key_file: str) -> Route:
        """How the proxy is told of it.

        Args:
            key_file: the file with the server's key.
        """
        endpoint = self.endpoint or self.adopted_endpoint
        has_place = endpoint is not None and not self.is_leaving
        state = RouteState.FAILED if self.state.phase is Phase.FAILED else RouteState.STARTING
        return Route(
            model=self.model,
            state=RouteState.READY if has_place else state,
            base_url=endpoint.base_url if endpoint is not None and has_place else "",
            key_file=key_file if has_place else "",
            upstream_model="" if self.upstream_model == self.model else self.upstream_model,
            slots=self.wanted.slots or 0,
            context_tokens=self.context_tokens,
            reason="" if has_place else self.state.reason or self.progress,
            asleep=self.state.phase is Phase.ASLEEP,
        )

    def shown(self) -> JsonObject:
        """What people are shown; no key is among it."""
        return {
            "name": self.model,
            "runtime": self.wanted.runtime,
            "phase": self.state.phase.value,
            "reason": self.state.reason,
            "failure": self.state.failure,
            "progress": self.progress,
            "restarts": self.state.restarts,
            "priority": self.wanted.priority.value,
            "evictionProtection": self.wanted.eviction_protection,
            "contextTokens": self.context_tokens,
            "worker": "" if self.record is None else self.record.worker_id,
            "baseUrl": "" if self.endpoint is None else self.endpoint.base_url,
        }

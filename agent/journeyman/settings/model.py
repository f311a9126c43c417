"""What can be set: one frozen, typed object with a description of each field."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from journeyman.core.proxy.reach import USUAL_REACH_PORT, Reach
from journeyman.core.server_url import checked_server_url
from journeyman.errors import ConfigError
from journeyman.settings.inference import Inference
from journeyman.settings.kinds import (
    NAMESPACE,
    AbsolutePath,
    Folders,
    Labels,
    Marks,
    Namespaces,
    Seconds,
    ServicePatterns,
    Words,
)
from journeyman.settings.reach import ReachAddress, ReachSources
from journeyman_updater.contract import StateRoot


class Settings(BaseSettings):
    """Every setting, with its unit in its name.  The descriptions are what docs/settings.md says.

    Constructing one reads nothing: values come from its arguments alone, and `load_settings` asks the
    other sources.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        env_prefix="JOURNEYMAN_",
        case_sensitive=True,
        # Lists and labels are spelled `a,b` and `key=value,key=value` in the environment, not as JSON.
        enable_decoding=False,
    )

    state_root: AbsolutePath = Field(description="Folder of all durable state of this node.")
    allow_insecure_http: bool = Field(
        default=False,
        description="Allow http to a host that is not this machine; the token is then readable.",
    )
    # Below `allow_insecure_http`, as its check needs that.
    server: str | None = Field(None, description="URL of the control plane's API.")
    token_file: AbsolutePath | None = Field(
        None, description="File with the bearer token; read again when it changes."
    )
    ca_file: AbsolutePath | None = Field(
        None, description="PEM file of the CA that signed the server's certificate."
    )
    certificate_file: AbsolutePath | None = Field(
        None,
        description="PEM file with a client certificate and its key, in place of token_file; read again when"
        " it changes.",
    )
    kubeconfig: AbsolutePath | None = Field(
        None, description="Kubeconfig file, in place of server, token_file and ca_file."
    )
    context: str | None = Field(None, description="Context of the kubeconfig; without it the current one.")
    insecure_skip_tls_verify: bool = Field(
        default=False, description="Obey a kubeconfig that asks not to prove the server's certificate."
    )
    namespace: str = Field(
        "default",
        pattern=f"^{NAMESPACE.pattern}$",
        description="Namespace of tasks and models.",
    )
    task_namespaces: Namespaces = Field(
        (), description="Namespaces whose tasks this node takes; without any, that of `namespace` alone."
    )
    node_name: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        description="Name of the FleetNode, used as it is; without it one is made from the host name.",
    )
    node_labels: Labels = Field(default_factory=dict, description="Labels of the FleetNode that are ours.")
    roles: Words = Field((), description="Roles of the node, by custom `worker` and `verifier`.")
    models: Words = Field((), description="Models to serve: names in the model store, or paths.")
    inference: tuple[Inference, ...] = Field(
        (), description="Models to serve with options of their own, `[[inference]]` tables; see below."
    )
    fleet_services: bool = Field(
        default=False,
        description="Serve InferenceServices that are this node's; see docs/inference.md.",
    )
    fleet_service_namespaces: Namespaces = Field(
        (), description="Namespaces of these services; without any, that of `namespace` alone."
    )
    fleet_service_allow: ServicePatterns = Field(
        (),
        description="Patterns `namespace/name` of services to serve; without any, those placed here.",
    )
    fleet_service_runtime: Literal["native", "llama-server"] = Field(
        "native", description="What serves the GGUF models of services."
    )
    fleet_service_extra_args: bool = Field(
        default=False, description="Let services name arguments of llama-server: as good as a shell here."
    )
    fleet_service_model_folders: Folders = Field(
        (), description="Folders from which a Model may name files of this host; without any, none."
    )
    accelerator: Literal["auto", "metal", "cuda", "vulkan", "none"] = Field(
        "auto", description="Accelerator to report; `auto` looks for one."
    )
    updates_source: Literal["none", "agentrelease"] = Field(
        "none",
        description="With `agentrelease` the AgentReleases of the plane may update this node.",
    )
    max_concurrent_tasks: int = Field(1, ge=0, le=64, description="Tasks that may run here at a time.")
    max_lane_jobs: int = Field(8, ge=0, le=256, description="Jobs of the host lane that may run at a time.")
    lane_receipts_kept: int = Field(
        50, ge=1, le=10_000, description="Ended jobs of the host lane whose receipt and output stay."
    )
    model_context_tokens: int = Field(4096, ge=128, description="Context of each slot of the model server.")
    model_parallel_slots: int = Field(
        1, ge=1, le=64, description="Requests a model server works on at a time."
    )
    model_threads: int = Field(0, ge=0, description="Compute threads of a model server; 0 is one a core.")

    model_hub_url: str = Field(
        "https://huggingface.co", pattern="^https?://.+", description="Model hub to which `hf://` leads."
    )
    model_hub_token_file: AbsolutePath | None = Field(
        None, description="File with a token of the model hub; it is sent to that hub alone."
    )
    model_plain_http_hosts: Words = Field(
        (), description="Hosts beside this one from which models may come over http without TLS."
    )
    model_download_stall_seconds: Seconds = Field(
        60, description="Silence of a server after which the fetch of a model is tried again."
    )

    model_start_timeout_seconds: Seconds = Field(
        600,
        description="Time a model server gets from its start to its first token, beside that for its size.",
    )
    model_load_bytes_per_second: int = Field(
        20_000_000,
        ge=100_000,
        description="Slowest disk that is put up with; for it a large model gets more time to start.",
    )
    model_probe_interval_seconds: Seconds = Field(
        0.05, description="Time between two looks whether a starting model server answers."
    )
    model_probe_timeout_seconds: Seconds = Field(
        60, description="Time a model server gets for the one token that proves it."
    )
    model_backoff_max_seconds: Seconds = Field(
        300, description="Longest wait before a model server that ended is started again."
    )
    model_healthy_seconds: Seconds = Field(
        600, description="A model server that answered this long has its earlier failures forgiven."
    )

    model_memory_fraction: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of the memory for all model servers; without it 0.67 up to 36 GiB, 0.75 above.",
    )
    model_turn_seconds: Seconds = Field(
        30, description="Time a model on demand that is in use goes on while another one waits for its place."
    )
    model_liveness_seconds: Seconds = Field(
        120, description="Time after which a model server that nobody has used generates a token as a proof."
    )
    model_speed_idle_seconds: Seconds = Field(
        5, description="Time for which a model server is left alone before its speed is measured."
    )
    model_speed_limit_seconds: Seconds = Field(
        3, description="Longest time that the measurement of a model server's speed may take."
    )
    model_speed_prompt_seconds: Seconds = Field(
        60, description="Longest time for the prompt of 2048 tokens behind which the speed is measured, too."
    )
    model_drain_seconds: Seconds = Field(
        300, description="Time a model server gets to finish its requests before another takes its place."
    )

    proxy: bool = Field(
        default=True,
        description="Offer all models of this host at one address; see docs/proxy.md.",
    )
    proxy_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port of that address; 0 is 6481, or a free one where that is taken, kept from then on.",
    )
    proxy_queue_limit: int = Field(
        64, ge=0, le=10_000, description="Requests for one model that may wait for their turn."
    )
    proxy_hold_seconds: Seconds = Field(
        120, description="Time a request is held for a model that is starting."
    )
    proxy_stall_seconds: Seconds = Field(
        600, description="Longest silence of a model server, or of a client that does not read."
    )
    proxy_tail_seconds: Seconds = Field(
        5, description="Longest silence of a model server after the last word of its answer."
    )
    proxy_head_seconds: Seconds = Field(
        75, description="Time the proxy waits for a client's next request, and for each part of it."
    )
    proxy_drain_seconds: Seconds = Field(
        300, description="Time a proxy gets to finish its streams when another takes its place."
    )

    proxy_reach_address: ReachAddress | None = Field(
        None,
        description="Address of this host at which other machines may use what the fleet has it serve; "
        "without one nobody can. See docs/proxy.md.",
    )
    proxy_reach_port: int = Field(USUAL_REACH_PORT, ge=1, le=65_535, description="Port at that address.")
    proxy_reach_sources: ReachSources = Field(
        (), description="Networks whose clients may connect there, such as `10.0.0.0/8`; nobody else can."
    )
    proxy_reach_without_key: bool = Field(
        default=False, description="Ask those clients for no key, as those of metal-agent have none."
    )
    proxy_reach_connections_per_source: int = Field(
        64, ge=1, le=512, description="Connections there that one address may have at a time."
    )

    registration_interval_seconds: Seconds = Field(
        30, description="Time between two heartbeats in the registration of a service that is reachable."
    )

    probe_timeout_seconds: Seconds = Field(
        3, description="Time a program gets that is asked about this machine, such as nvidia-smi."
    )
    heartbeat_interval_seconds: Seconds = Field(30, description="Time from one heartbeat to the next.")
    heartbeat_timeout_seconds: Seconds = Field(8, description="After this a heartbeat counts as failed.")
    heartbeat_jitter_fraction: float = Field(
        0.1,
        ge=0,
        le=0.5,
        description="How far an interval may differ, so that a fleet does not beat in step.",
    )
    parting_beat_timeout_seconds: Seconds = Field(
        5, description="Time the last heartbeat before a stop may take."
    )
    farewell_seconds: Seconds = Field(
        4, description="Time for hand-backs and the last heartbeat before the host sleeps; logind waits 5."
    )
    farewell_patience_seconds: Seconds = Field(
        120, description="A host that has announced a sleep or shutdown and is awake this long stays."
    )
    power_retry_seconds: Seconds = Field(
        60, description="Time until logind or IOKit is asked again after it could not be heard."
    )
    task_poll_seconds: Seconds = Field(
        5, description="Longest time between two looks at the tasks at hand; a look costs no request."
    )
    request_timeout_seconds: Seconds = Field(
        10, description="Silence of the plane after which a request to it has failed."
    )
    credential_plugin_timeout_seconds: Seconds = Field(
        60, description="Time a credential plugin of a kubeconfig gets to print a credential."
    )
    token_check_seconds: Seconds = Field(
        60, description="Time between two looks whether a token or certificate of ours has to be renewed."
    )
    certificate_poll_seconds: Seconds = Field(
        2, description="Time between two looks of `join --csr` whether its request was approved."
    )
    certificate_life_seconds: int | None = Field(
        None, ge=600, description="Life of the certificates we ask for; without it as the signer likes."
    )
    certificate_renewal_fraction: float = Field(
        0.8,
        ge=0.2,
        le=0.95,
        description="Part of a certificate's life after which the next one is asked for; up to a tenth less,"
        " by chance.",
    )
    watch_seconds: Seconds = Field(300, description="Time after which a watch is ended and opened anew.")
    watch_stall_seconds: Seconds = Field(
        90, description="Silence after which a watch counts as dead; a server speaks about once a minute."
    )
    watch_retry_max_seconds: Seconds = Field(
        30, description="Longest wait before a watch that failed is opened again."
    )
    battery_pause_seconds: Seconds = Field(
        15, description="On battery: shortest time between two readings of a watch, and between two looks."
    )
    outbox_retry_first_seconds: Seconds = Field(
        1, description="Wait after the first failed delivery of a result."
    )
    outbox_retry_max_seconds: Seconds = Field(60, description="Longest wait between two tries of a delivery.")
    stop_grace_seconds: Seconds = Field(20, description="Time the agent takes for a stop before it gives up.")
    worker_stop_grace_seconds: Seconds = Field(
        10, description="Time a worker gets between SIGTERM and SIGKILL."
    )

    gates: Marks = Field(
        default_factory=dict, description="Marks of the admission gates, a table; see docs/gates.md."
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="How log lines look; `auto` is `console` on a terminal, otherwise `json`."
    )

    @property
    def namespaces_of_tasks(self) -> tuple[str, ...]:
        """Whose tasks this node takes."""
        return self.task_namespaces or (self.namespace,)

    @property
    def namespaces_of_services(self) -> tuple[str, ...]:
        """Whose InferenceServices this node serves; none where it serves none."""
        named = self.fleet_service_namespaces or (self.namespace,)
        return named if self.fleet_services else ()

    @property
    def root(self) -> StateRoot:
        """The names of the files below the state root."""
        return StateRoot(self.state_root)

    @property
    def reach(self) -> Reach | None:
        """Where the proxy is reachable from other machines; None where it is not."""
        if self.proxy_reach_address is None:
            return None
        return Reach(
            self.proxy_reach_address,
            self.proxy_reach_port,
            self.proxy_reach_sources,
            has_key=not self.proxy_reach_without_key,
            connections_per_source=self.proxy_reach_connections_per_source,
            body_seconds=self.proxy_head_seconds,
        )

    def served(self) -> tuple[Inference, ...]:
        """All models of this host with nothing left open: first those of `models`, which are preferred."""
        short = [Inference(model=model) for model in self.models]
        return tuple(self.settled(each) for each in (*short, *self.inference))

    def settled(self, wanted: Inference) -> Inference:
        """What is to be served with nothing left open: this host's own numbers where it names none."""
        general = {
            "context_tokens": self.model_context_tokens,
            "slots": self.model_parallel_slots,
            "threads": self.model_threads,
        }
        # Of a server that is not ours we only know what we are told; 0 is no limit there.
        known = general if wanted.runtime != "external" else {"context_tokens": 0, "slots": 0, "threads": 0}
        return wanted.model_copy(
            update={name: value for name, value in known.items() if getattr(wanted, name) is None}
        )

    @classmethod
    def settings_customise_sources(cls, *_: Any, **sources: Any) -> tuple[PydanticBaseSettingsSource, ...]:
        """Names the only source of a construction: its arguments."""
        return (sources["init_settings"],)

    @field_validator("inference")
    @classmethod
    def _check_names(cls, tables: tuple[Inference, ...], info: ValidationInfo) -> tuple[Inference, ...]:
        names = [*info.data.get("models", ()), *(each.shown_name for each in tables)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is there twice; give one of them another `name`")
        return tables

    @field_validator("outbox_retry_max_seconds")
    @classmethod
    def _check_longest_wait(cls, value: float, info: ValidationInfo) -> float:
        first = info.data.get("outbox_retry_first_seconds")
        if first is not None and value < first:
            raise ValueError(f"must not be shorter than outbox_retry_first_seconds ({first:g})")
        return value

    @field_validator("server")
    @classmethod
    def _check_server(cls, value: str | None, info: ValidationInfo) -> str | None:
        # Where `allow_insecure_http` itself is wrong, that alone is complained about.
        insecure = info.data.get("allow_insecure_http", True)
        try:
            return None if value is None else checked_server_url(value, allow_insecure_http=insecure)
        except ConfigError as error:
            raise ValueError(error.message) from error

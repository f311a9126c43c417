"""From what the settings say to a server that runs: obtains the model, and starts the worker."""

from __future__ import annotations

import re
import secrets
from functools import partial

import structlog

from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import Interpreter, model_server_spec
from journeyman.errors import HostError, ModelError, ModelFault
from journeyman.model.model_file import ModelFile
from journeyman.ports import ModelStore, Workers
from journeyman.serving.server import Server
from journeyman.settings import Inference
from journeyman.waiting import aside
from journeyman_updater.contract import WorkerRecord

log = structlog.get_logger(__name__)

# What a runtime serves, where that is no GGUF file.
FORMS = {"mlx": "safetensors"}


class Starter:
    """Starts model servers.

    Args:
        workers: the processes.
        store: the models.
        interpreter: the Python that runs the workers.
    """

    def __init__(self, workers: Workers, store: ModelStore, interpreter: Interpreter) -> None:
        self._workers = workers
        self._store = store
        self._interpreter = interpreter

    def config_if_here(self, server: Server) -> ServerConfig | None:
        """What it is started for; None where something of it has to be fetched first.

        Notes at the server what its model was trained for, and how much there is to load.
        """
        wanted = server.wanted
        found = self._store.find(wanted.model)
        draft = self._store.find(wanted.draft_model) if wanted.draft_model else None
        if found is None or not _is_right(found, wanted) or (wanted.draft_model and draft is None):
            return None
        server.trained_tokens = found.context_tokens
        server.weights_bytes = found.size_bytes + (0 if draft is None else draft.size_bytes)
        return config_of(wanted, found, draft)

    async def obtain(self, server: Server) -> ServerConfig:
        """What its server is started for, once all of it is here.

        Asked before each start, as the user may have put another file in the place of the last one.

        Raises:
            ModelError: there is no such model, it is damaged, or of a form that its runtime cannot serve.
            HostError: it could not be fetched.
        """
        wanted, is_over = server.wanted, False

        def tell(line: str) -> None:
            if is_over:
                raise HostError(f"nobody asks for {wanted.shown_name} any more")
            server.progress = line
            log.info("model_progress", model=wanted.shown_name, progress=line)

        try:
            for model in filter(None, (wanted.model, wanted.draft_model)):
                sha256 = (wanted.sha256 or "") if model == wanted.model else ""
                found = self._store.find(model)
                if found is None or sha256 not in {"", found.sha256}:
                    await aside(partial(self._store.obtain, model, tell, sha256))
                    found = self._store.find(model)
                assert found is not None
                check_form(found, wanted.runtime)
        finally:
            # Who is cancelled leaves a thread that goes on fetching: it hears of it with its next line.
            is_over = True
            server.progress = ""
        config = self.config_if_here(server)
        assert config is not None
        return config

    def start(self, config: ServerConfig) -> WorkerRecord:
        """A worker with a key of its own.  Raises WorkerError: it could not be started."""
        key = secrets.token_urlsafe(32).encode()
        spec, files = model_server_spec(config, key, self._interpreter)
        name = re.sub(r"[^A-Za-z0-9._-]", "-", config.model)[:80]
        return self._workers.start(f"model-{name}-{secrets.token_hex(4)}", spec, files)


def check_form(model: ModelFile, runtime: str) -> None:
    """Raises ModelError where a runtime cannot serve that form, as its own words would be riddles."""
    wanted = FORMS.get(runtime, "gguf")
    if model.form != wanted:
        what = "a folder of safetensors" if model.form == "safetensors" else "a GGUF file"
        fitting = "mlx" if model.form == "safetensors" else "native"
        raise ModelError(
            f"{model.name} is {what}, which runtime {runtime} cannot serve",
            f'Set runtime = "{fitting}", or name the model in another form.',
            fault=ModelFault.WRONG_RUNTIME,
        )


def _is_right(found: ModelFile, wanted: Inference) -> bool:
    """Whether it has the digest that was asked for, if one was."""
    return wanted.sha256 in {None, found.sha256}


def config_of(wanted: Inference, model: ModelFile, draft: ModelFile | None) -> ServerConfig:
    """The configuration of a server.

    Args:
        wanted: with nothing left open, as `Settings.served` has it.
        model: what it serves.
        draft: what drafts for it.
    """
    defaults = ServerConfig(model.name, model.path, model.sha256)
    return ServerConfig(
        model=wanted.name or model.name,
        path=model.path,
        sha256=model.sha256,
        context_tokens=wanted.context_tokens or defaults.context_tokens,
        parallel=wanted.slots or defaults.parallel,
        threads=wanted.threads or 0,
        runtime=wanted.runtime,
        program=str(wanted.program or ""),
        mode=wanted.mode,
        gpu_layers=defaults.gpu_layers if wanted.gpu_layers is None else wanted.gpu_layers,
        cache_type_k=wanted.cache_type_k or "",
        cache_type_v=wanted.cache_type_v or "",
        flash_attention=wanted.flash_attention,
        draft_path="" if draft is None else draft.path,
        draft_sha256="" if draft is None else draft.sha256,
        jinja=wanted.jinja,
        chat_template_file=str(wanted.chat_template_file or ""),
        port=wanted.port,
        extra_args=wanted.extra_args,
        kv_offload=wanted.kv_offload,
        batch_tokens=wanted.batch_tokens or 0,
        micro_batch_tokens=wanted.micro_batch_tokens or 0,
        rope_scaling=wanted.rope_scaling or "",
        rope_scale=wanted.rope_scale or 0,
        rope_original_tokens=wanted.rope_original_tokens or 0,
        reasoning_budget=defaults.reasoning_budget
        if wanted.reasoning_budget is None
        else wanted.reasoning_budget,
    )

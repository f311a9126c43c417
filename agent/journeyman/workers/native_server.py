"""Serves one GGUF model by llama.cpp's own HTTP server: `python -m journeyman.workers.native_server`.

Runs in the folder that holds `config.json` and `api-key`.  The kernel chooses the port, so it can never be
taken already; `endpoint.json` tells it once the server listens.  On SIGTERM it finishes the requests that
it has, unless a SIGINT follows, and ends with 0.  It ends with 74 and one line in `reason.txt` when the
model does not load, with 71 when the runtime is not installed, with 70 when another try may succeed.

Left to others: whether the model fits into memory, restarts, and proving that it generates.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman.core.completion import KEY_FILE
from journeyman.core.runtimes.base import LISTEN_HOST
from journeyman.core.runtimes.llama_server import BUFFERS_REPORTED
from journeyman.core.server_config import ServerConfig
from journeyman.core.server_failure import Failure, FailureKind, failure_in
from journeyman.core.worker_specs import CONFIG_FILE
from journeyman.workers.telling import ServerFailedError, refuse_held_port, tell_endpoint, tell_failure

LOAD_LOG = Path("load.log")
GIVEN_UP = "exiting due to"
LAST_WORDS_SECONDS = 5.0
LOOK_SECONDS = 0.02
IDLE_LOOK_SECONDS = 0.05
# A request may be between its socket and the queue at the first look.
IDLE_LOOKS = 2
METRICS_TIMEOUT_SECONDS = 5.0
UNFINISHED = re.compile(rb"^llamacpp:requests_(?:processing|deferred) ([0-9.]+)", re.MULTILINE)
ENDINGS = {signal.SIGTERM, signal.SIGINT}


def main() -> int:
    """Serves until SIGTERM.

    Returns:
        The exit code.
    """
    # Blocked before the server makes its threads, which inherit the mask: so the wait below gets the signal.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        server = _start(ServerConfig.from_json(Path(CONFIG_FILE).read_bytes()))
    except ServerFailedError as error:
        return tell_failure(error.failure)
    tell_endpoint(f"{server.listening_address}/v1")
    signal.sigwait(ENDINGS)
    _finish_requests(server.listening_address.removeprefix("http://"), Path(KEY_FILE).read_text().strip())
    # Deleting it waits for its threads; requests in flight are cut off.
    del server
    return 0


def _finish_requests(address: str, key: str) -> None:
    """Returns once nothing is generated or waits; who is in a hurry sends SIGINT, or in the end SIGKILL."""
    idle_looks = 0
    while idle_looks < IDLE_LOOKS and signal.SIGINT not in signal.sigpending():
        idle_looks = 0 if _has_requests(address, key) else idle_looks + 1
        time.sleep(IDLE_LOOK_SECONDS)


def _has_requests(address: str, key: str) -> bool:
    connection = http.client.HTTPConnection(address, timeout=METRICS_TIMEOUT_SECONDS)
    try:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})
        text = connection.getresponse().read()
    except TimeoutError:
        # It reads a long prompt, and looks at questions of ours between two batches.
        return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return any(float(number) > 0 for number in UNFINISHED.findall(text))


def _start(config: ServerConfig) -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        message = f"the runtime xllamacpp cannot be imported: {error}"
        raise ServerFailedError(Failure(FailureKind.RUNTIME_MISSING, message)) from error
    refuse_held_port(config.port)
    params = _params(xllamacpp, config)
    with _captured_stderr(LOAD_LOG):
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            failure = failure_in(_last_words(LOAD_LOG))
            if failure is None:
                failure = Failure(FailureKind.CRASHED, str(error))
            message = f"model {config.model} does not load: {failure.message}"
            raise ServerFailedError(replace(failure, message=message)) from error


def _params(xllamacpp: Any, config: ServerConfig) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = config.path
    params.model_alias = {config.model}
    params.hostnames = [LISTEN_HOST]
    params.port = config.port
    params.api_keys = [Path(KEY_FILE).read_text().strip()]
    params.n_ctx = config.context_tokens * config.parallel
    params.n_parallel = config.parallel
    params.cpuparams.n_threads = config.threads or os.cpu_count() or 1
    # No spinning between two tokens either, see PASSIVE_WAITING.
    params.cpuparams.poll = 0
    # A cache of old prompts in host memory would take up to 8 GiB by default; hosts here have less.
    params.cache_ram_mib = 0
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.use_jinja = config.jinja
    params.offline = True
    params.verbosity = BUFFERS_REPORTED
    params.ui = False
    # The first question warms it up, and readiness is a generated token anyway.
    params.warmup = False
    _choices(xllamacpp, params, config)
    return params


def _choices(xllamacpp: Any, params: Any, config: ServerConfig) -> None:
    """What people have chosen in place of llama.cpp's own defaults."""
    flash = {"on": "ENABLED", "off": "DISABLED"}.get(config.flash_attention, "AUTO")
    params.flash_attn_type = xllamacpp.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{flash}"]
    if config.gpu_layers >= 0:
        params.n_gpu_layers = config.gpu_layers
    if config.cache_type_k:
        params.cache_type_k = xllamacpp.ggml_type[f"GGML_TYPE_{config.cache_type_k.upper()}"]
    if config.cache_type_v:
        params.cache_type_v = xllamacpp.ggml_type[f"GGML_TYPE_{config.cache_type_v.upper()}"]
    _sizes(xllamacpp, params, config)
    if config.draft_path:
        params.speculative.draft.mparams.path = config.draft_path
        simple = xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE
        params.speculative.types = [simple]
    if config.chat_template_file:
        params.chat_template = _text_of(config.chat_template_file)
    if config.mode != "chat":
        params.embedding = True
    if config.mode == "rerank":
        params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_RANK


def _sizes(xllamacpp: Any, params: Any, config: ServerConfig) -> None:
    """How much is computed at a time, where keys and values are, and how far a context is stretched."""
    params.no_kv_offload = not config.kv_offload
    if config.batch_tokens:
        params.n_batch = config.batch_tokens
    if config.micro_batch_tokens:
        params.n_ubatch = config.micro_batch_tokens
    if config.rope_scaling:
        kind = f"LLAMA_ROPE_SCALING_TYPE_{config.rope_scaling.upper()}"
        params.rope_scaling_type = xllamacpp.llama_rope_scaling_type[kind]
        params.yarn_orig_ctx = config.rope_original_tokens
    if config.rope_scale:
        # As its own option has it: the factor is that of the context, and the frequency is the inverse.
        params.rope_freq_scale = 1 / config.rope_scale


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"the chat template {path} cannot be read: {error}"
        raise ServerFailedError(Failure(FailureKind.BAD_OPTION, message)) from error


@contextmanager
def _captured_stderr(path: Path) -> Iterator[None]:
    """Lets everything below Python write its stderr to a file, and passes it on afterwards."""
    original = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(original, 2)
        os.close(original)
        sys.stderr.write(path.read_text(errors="replace"))
        sys.stderr.flush()


def _last_words(path: Path) -> str:
    """The log of a server that has given up.

    llama.cpp logs from a thread of its own, which may be behind the error that we have caught.
    """
    for _ in range(int(LAST_WORDS_SECONDS / LOOK_SECONDS)):
        if GIVEN_UP in path.read_text(errors="replace"):
            break
        time.sleep(LOOK_SECONDS)
    return path.read_text(errors="replace")


if __name__ == "__main__":
    sys.exit(main())

"""The server of llama-cpp-python: llama.cpp behind a Python server of its own, compiled on the host.

It serves one request at a time: with its default, a second stream would cut the first one off.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from journeyman.core.runtimes.base import KEY_PLACE, LISTEN_HOST, Launch
from journeyman.core.server_config import ServerConfig

CONFIG_FILE = "llama-cpp-python.json"
ALL_LAYERS = -1


@dataclass(frozen=True)
class LlamaCppPython:
    """See `Runtime`.  Everything is in a file, the key included, so no option has to be known."""

    program: str = "python3"
    module: str = "llama_cpp.server"
    reads_help: bool = False

    def launch(self, config: ServerConfig, options: frozenset[str], key_file: str) -> Launch:
        """See `Runtime.launch`."""
        model: dict[str, object] = {
            "model": config.path,
            "model_alias": config.model,
            "n_ctx": config.context_tokens,
            "n_gpu_layers": ALL_LAYERS if config.gpu_layers < 0 else config.gpu_layers,
            "flash_attn": config.flash_attention == "on",
        }
        if config.threads:
            model["n_threads"] = config.threads
        settings = {
            "host": LISTEN_HOST,
            "port": config.port,
            "api_key": KEY_PLACE,
            "interrupt_requests": False,
            "models": [model],
        }
        return Launch(
            argv=("--config_file", CONFIG_FILE, *config.extra_args),
            files={CONFIG_FILE: json.dumps(settings).encode()},
        )

"""`mlx_lm.server`: models in Apple's MLX format, which are folders.

It knows neither keys nor contexts nor grammars, and ends the moment it is asked to.  So its clients are the
proxy's, and whoever ends it waits for its requests first.
"""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.core.runtimes.base import LISTEN_HOST, Launch
from journeyman.core.server_config import ServerConfig

# What it calls the model that it was started with.  Any other name makes it unload that and load the other.
UPSTREAM_MODEL = "default_model"
# Its own default of 512 cuts tool calls in half.
LONGEST_ANSWER_TOKENS = 4096


@dataclass(frozen=True)
class MlxServer:
    """See `Runtime`."""

    program: str = "mlx_lm.server"
    module: str = ""
    reads_help: bool = False

    def launch(self, config: ServerConfig, options: frozenset[str], key_file: str) -> Launch:
        """See `Runtime.launch`."""
        told = {
            "--model": config.path,
            "--host": LISTEN_HOST,
            "--port": config.port,
            "--decode-concurrency": config.parallel,
            "--prompt-concurrency": config.parallel,
            "--max-tokens": LONGEST_ANSWER_TOKENS,
        }
        if config.draft_path:
            told["--draft-model"] = config.draft_path
        argv = [str(word) for pair in told.items() for word in pair]
        # What is not here is not fetched behind our back.
        return Launch((*argv, *config.extra_args), env={"HF_HUB_OFFLINE": "1"})

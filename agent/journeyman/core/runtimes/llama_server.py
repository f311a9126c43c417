"""llama.cpp's `llama-server`: a program that people build or install themselves, of whatever age it is."""

from __future__ import annotations

from dataclasses import dataclass

from journeyman.core.runtimes.base import LISTEN_HOST, TRACE, Launch
from journeyman.core.runtimes.options import Options
from journeyman.core.server_config import ServerConfig

# The level of the log at which llama.cpp says what memory it takes; prompts are not in it.
BUFFERS_REPORTED = 4
MODES = {"embedding": "--embeddings --embedding", "rerank": "--reranking --rerank"}


@dataclass(frozen=True)
class LlamaServer:
    """See `Runtime`."""

    program: str = "llama-server"
    module: str = ""
    reads_help: bool = True

    def launch(self, config: ServerConfig, options: frozenset[str], key_file: str) -> Launch:
        """See `Runtime.launch`."""
        argv = Options(options, self.program)
        argv.need("--model", config.path)
        argv.need("--host", LISTEN_HOST)
        argv.need("--port", config.port)
        argv.need("--api-key-file", key_file)
        argv.need("--ctx-size", config.context_tokens * config.parallel)
        argv.need("--parallel", config.parallel)
        argv.want("--alias", config.model)
        if config.threads:
            argv.need("--threads", config.threads)
        # No spinning between two tokens, see PASSIVE_WAITING.
        argv.want("--poll", 0)
        # A cache of old prompts in host memory would take up to 8 GiB by default; hosts here have less.
        argv.want("--cache-ram", 0)
        for name in ("--metrics", "--offline", "--no-webui", "--no-warmup"):
            argv.want(name)
        if TRACE in options:
            argv.want("--log-verbosity", BUFFERS_REPORTED)
        self._choices(argv, config)
        return Launch(argv.argv(*config.extra_args))

    def _choices(self, argv: Options, config: ServerConfig) -> None:
        """What people have chosen in place of llama.cpp's own defaults."""
        # Older builds have flash attention off, and take its option without a word; they refuse the word.
        chosen: dict[str, object] = {
            "--gpu-layers --n-gpu-layers": config.gpu_layers if config.gpu_layers >= 0 else "",
            "--flash-attn": "" if config.flash_attention == "auto" else config.flash_attention,
            "--cache-type-k": config.cache_type_k,
            "--cache-type-v": config.cache_type_v,
            "--spec-draft-model --model-draft": config.draft_path,
            "--chat-template-file": config.chat_template_file,
            "--batch-size": config.batch_tokens or "",
            "--ubatch-size": config.micro_batch_tokens or "",
            "--rope-scaling": config.rope_scaling,
            "--rope-scale": config.rope_scale or "",
            "--yarn-orig-ctx": config.rope_original_tokens or "",
            "--reasoning-budget": config.reasoning_budget if config.reasoning_budget >= 0 else "",
        }
        for names, value in chosen.items():
            if value != "":
                argv.need(names, value)
        if not config.kv_offload:
            argv.need("--no-kv-offload")
        if config.draft_path:
            argv.want("--spec-type", "draft-simple")
        argv.want("--jinja" if config.jinja else "--no-jinja")
        if config.mode != "chat":
            argv.need(MODES[config.mode])

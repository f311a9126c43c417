"""How the programs of others are started."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from journeyman.core.runtimes.base import KEY_PLACE, options_in
from journeyman.core.runtimes.catalogue import PROGRAMS
from journeyman.core.server_config import ServerConfig
from journeyman.errors import ConfigError

CONFIG = ServerConfig("smol", "/m/smol.gguf", "0f", context_tokens=2048, parallel=2, threads=3)
# Lines of `llama-server --help` of 2026-08, as they are.
NEW_HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use during generation (default: <num_cpus>)
                                        (env: LLAMA_ARG_THREADS)
--poll <0...100>                        use polling level to wait for work (0 - no polling, default: 50)
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
-ctk,  --cache-type-k TYPE              KV cache data type for K
-ctv,  --cache-type-v TYPE              KV cache data type for V
-b,    --batch-size N                   logical maximum batch size (default: 2048)
-ub,   --ubatch-size N                  physical maximum batch size (default: 512)
--rope-scaling {none,linear,yarn}       RoPE frequency scaling method, defaults to linear unless specified by
                                        the model
--rope-scale N                          RoPE context scaling factor, expands context by a factor of N
--yarn-orig-ctx N                       YaRN: original context size of model (default: 0 = model training
                                        context size)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
--reasoning-budget N                    token budget for thinking: -1 for unrestricted, 0 for immediate end,
                                        N>0 for token budget (default: -1)
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM
-m,    --model FNAME                    model path to load
-cram, --cache-ram N                    set the maximum cache size in MiB (default: 8192)
--offline                               Offline mode: forces use of cache, prevents network access
--spec-draft-model, -md, --model-draft FNAME
                                        draft model for speculative decoding
--spec-type none,draft-simple           types of speculative decoding
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
-np,   --parallel N                     number of server slots (default: -1, -1 = auto)
-a,    --alias STRING                   set model name aliases, comma-separated (to be used by API)
--host HOST                             IP addresses to listen on
--port PORT                             port to listen (default: 8080)
--ui,  --webui, --no-ui, --no-webui     whether to enable the Web UI (default: enabled)
--embedding, --embeddings               restrict to only support embedding use case; use only with dedicated
--rerank, --reranking                   enable reranking endpoint on server (default: disabled)
--api-key-file FNAME                    path to file containing API keys
--metrics                               enable prometheus compatible metrics endpoint (default: disabled)
--jinja, --no-jinja                     whether to use jinja template engine for chat (default: enabled)
--chat-template-file JINJA_TEMPLATE_FILE
                                        set custom jinja chat template file
"""
NEW = options_in(NEW_HELP)


def llama_server(config: ServerConfig, options: frozenset[str] = NEW) -> list[str]:
    return list(PROGRAMS["llama-server"].launch(config, options, "api-key").argv)


def value_of(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1]


def test_options_are_read_from_the_help() -> None:
    """Every spelling counts; words of descriptions, and options that were removed, do not."""
    assert {"--model", "-m", "--webui", "--no-webui", "--spec-draft-model", "--model-draft", "-fa"} <= NEW
    assert NEW.isdisjoint({"--draft", "--draft-n", "--spec-draft-n-max", "--spec-ngram-mod-n-max"})


def test_the_memory_is_reported_where_that_does_not_log_prompts() -> None:
    """Only a build whose level 4 is that of traces is asked for it: older ones log prompts there."""
    verbosity = "-lv, --verbosity, --log-verbosity N  Set the verbosity threshold. Values:\n"
    traces = options_in(NEW_HELP + verbosity + "   - 3: info\n   - 4: trace (more info)\n   - 5: debug\n")
    assert value_of(llama_server(CONFIG, traces), "--log-verbosity") == "4"
    assert "--log-verbosity" not in llama_server(CONFIG, options_in(NEW_HELP + verbosity))


def test_a_server_listens_on_loopback_and_its_key_is_in_a_file() -> None:
    """It never listens elsewhere, takes a port that is free, and its key is not in its arguments."""
    argv = llama_server(CONFIG)
    assert (value_of(argv, "--host"), value_of(argv, "--port")) == ("127.0.0.1", "0")
    assert value_of(argv, "--api-key-file") == "api-key"
    assert value_of(argv, "--ctx-size") == "4096"
    assert value_of(argv, "--parallel") == "2"
    assert value_of(argv, "--threads") == "3"


def test_no_mode_fills_a_cache_of_prompts_that_nobody_reads() -> None:
    """Eight gigabytes of old prompts are not kept, in no mode."""
    for mode in ("chat", "embedding", "rerank"):
        assert value_of(llama_server(replace(CONFIG, mode=mode)), "--cache-ram") == "0"
    assert "--embeddings" in llama_server(replace(CONFIG, mode="embedding"))
    assert "--reranking" in llama_server(replace(CONFIG, mode="rerank"))


def test_every_choice_reaches_the_program() -> None:
    """What people have set is passed on, and their own arguments come last."""
    config = replace(
        CONFIG,
        gpu_layers=0,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        flash_attention="on",
        draft_path="/m/draft.gguf",
        jinja=False,
        chat_template_file="/t.jinja",
        extra_args=("--seed", "1"),
        kv_offload=False,
        batch_tokens=1024,
        micro_batch_tokens=256,
        rope_scaling="yarn",
        rope_scale=2.0,
        rope_original_tokens=1024,
        reasoning_budget=0,
    )
    argv = llama_server(config)
    assert (value_of(argv, "--batch-size"), value_of(argv, "--ubatch-size")) == ("1024", "256")
    assert (value_of(argv, "--rope-scaling"), value_of(argv, "--rope-scale")) == ("yarn", "2.0")
    assert (value_of(argv, "--yarn-orig-ctx"), value_of(argv, "--reasoning-budget")) == ("1024", "0")
    assert "--no-kv-offload" in argv
    assert value_of(argv, "--gpu-layers") == "0"
    assert value_of(argv, "--cache-type-k") == "q8_0"
    assert value_of(argv, "--cache-type-v") == "q4_0"
    assert value_of(argv, "--flash-attn") == "on"
    assert value_of(argv, "--spec-draft-model") == "/m/draft.gguf"
    assert value_of(argv, "--chat-template-file") == "/t.jinja"
    assert "--no-jinja" in argv
    assert argv[-2:] == ["--seed", "1"]


def test_an_older_build_is_given_what_it_knows() -> None:
    """An older spelling is used where there is one, and what only saves something is left out."""
    old = NEW - {"--spec-draft-model", "--spec-type", "--cache-ram", "--offline", "--no-webui", "--alias"}
    argv = llama_server(replace(CONFIG, draft_path="/m/draft.gguf"), old)
    assert value_of(argv, "--model-draft") == "/m/draft.gguf"
    assert set(argv).isdisjoint({"--spec-type", "--cache-ram", "--offline", "--no-webui", "--alias"})


@pytest.mark.parametrize("missing", ["--api-key-file", "--host", "--cache-type-k"])
def test_a_build_that_cannot_do_what_is_asked_is_refused(missing: str) -> None:
    """A server without a key, or with another cache than people chose, is not started."""
    with pytest.raises(ConfigError, match=f"has no option {missing}"):
        llama_server(replace(CONFIG, cache_type_k="q8_0"), NEW - {missing})


def test_llama_cpp_python_finds_its_key_in_a_file() -> None:
    """All of its settings are in a file that gets the key when it is written; no stream cuts another."""
    launch = PROGRAMS["llama-cpp-python"].launch(CONFIG, frozenset(), "api-key")
    assert list(launch.argv) == ["--config_file", *launch.files]
    (content,) = launch.files.values()
    told = json.loads(content)
    assert (told["host"], told["port"], told["api_key"]) == ("127.0.0.1", 0, KEY_PLACE)
    assert told["interrupt_requests"] is False
    assert told["models"][0]["n_ctx"] == 2048


def test_mlx_fetches_nothing_behind_our_back() -> None:
    """It serves the folder that it is given, offline, and does not cut answers at 512 tokens."""
    launch = PROGRAMS["mlx"].launch(replace(CONFIG, path="/m/tiny"), frozenset(), "api-key")
    assert launch.env == {"HF_HUB_OFFLINE": "1"}
    argv = list(launch.argv)
    assert (value_of(argv, "--model"), value_of(argv, "--host")) == ("/m/tiny", "127.0.0.1")
    assert int(value_of(argv, "--max-tokens")) > 512

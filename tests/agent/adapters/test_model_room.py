"""Whether a host has memory for a server, with real files and made-up hosts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.adapters.durable_json import JsonFile
from journeyman.adapters.model_room import ModelRoom
from journeyman.core.model_admission import Refusal
from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import Interpreter, model_server_spec
from journeyman.ports import Memory, Usage
from tests.support.fake_workers import FakeWorkers
from tests.support.shaped_gguf import Shape, write_shaped_gguf
from tests.support.tiny_mlx import write_tiny_mlx

GB = 10**9


class Host:
    """16 GB, and a model whose server takes about 1.3 GB with its context."""

    def __init__(self, folder: Path) -> None:
        path = folder / "m.gguf"
        write_shaped_gguf(path, Shape(layers=32))
        self.config = ServerConfig("m", str(path), "0f", context_tokens=16_384)
        self.workers = FakeWorkers()
        self.available = 15 * GB
        self.promised = 0
        self.fraction: float | None = None
        self.has_own_memory = False
        self.taken = folder / "allocations.json"
        self.agent = self.room()

    def room(self) -> ModelRoom:
        """As the next agent makes it."""
        return ModelRoom(
            workers=self.workers,
            taken=JsonFile(self.taken),
            memory=lambda: Memory(16 * GB, self.available),
            kept_bytes=GB,
            reserved_bytes=lambda: self.promised,
            fraction=self.fraction,
            has_own_memory=lambda: self.has_own_memory,
        )

    def refuse(self, config: ServerConfig) -> Refusal | None:
        return asyncio.run(self.room().refuse(config))

    def ran(self, config: ServerConfig, *, log: str = "", resident: int = 0) -> None:
        """A server has run, has said that, and used so much."""
        self.run(config, "model-ran")
        self.workers.words["model-ran"] = log
        self.workers.uses["model-ran"] = Usage(ram_bytes=resident)
        (record,) = self.workers.known()
        asyncio.run(self.agent.settled(record))
        self.workers.finish("model-ran")
        self.workers.remove(record)

    def run(self, config: ServerConfig, worker_id: str) -> None:
        spec, files = model_server_spec(config, b"key", Interpreter("/opt/python"))
        self.workers.start(worker_id, spec, files)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_context_decides(host: Host) -> None:
    """The same file fits with one context and never with another, and a quantised cache helps."""
    assert host.refuse(host.config) is None
    large = replace(host.config, context_tokens=180_000)
    found = host.refuse(large)
    assert found is not None
    assert found.is_final
    assert "context 11.8 GB" in found.message
    assert host.refuse(replace(large, cache_type_k="q4_0", cache_type_v="q4_0")) is None


def test_what_is_computed_at_a_time_counts(host: Host) -> None:
    """A server that computes more tokens at a time takes memory for that."""
    host.fraction = 0.1
    assert host.refuse(host.config) is None
    found = host.refuse(replace(host.config, micro_batch_tokens=16_384))
    assert found is not None
    assert found.is_final


def test_servers_that_run_count_with_what_they_were_started_for(host: Host) -> None:
    """A second one of 6 GB does not fit beside the first, and fits once that has ended."""
    large = replace(host.config, context_tokens=90_000)
    assert host.refuse(large) is None
    host.run(large, "model-first")
    found = host.refuse(replace(large, model="second"))
    assert found is not None
    assert not found.is_final
    host.workers.finish("model-first")
    assert host.refuse(replace(large, model="second")) is None


def test_what_others_were_promised_and_what_is_kept_are_not_given(host: Host) -> None:
    """The lane's grants and the host's reserve come off what is available."""
    host.available = 4 * GB
    assert host.refuse(host.config) is None
    host.promised = 2 * GB
    found = host.refuse(host.config)
    assert found is not None
    assert "1 GB are free, with 2 GB promised to others" in found.message


def test_a_person_may_set_the_share(host: Host) -> None:
    """A tenth of 16 GB is enough for this one, a hundredth never is."""
    host.fraction = 0.1
    assert host.refuse(host.config) is None
    host.fraction = 0.01
    found = host.refuse(host.config)
    assert found is not None
    assert found.is_final


def test_what_cannot_be_estimated_is_let_through(host: Host, tmp_path: Path) -> None:
    """What is no model, and layers in a GPU's own memory; without layers there it is judged all the same."""
    host.fraction = 0.01
    assert host.refuse(ServerConfig("mlx", str(tmp_path), "")) is None
    host.has_own_memory = True
    assert host.refuse(host.config) is None
    assert host.refuse(replace(host.config, gpu_layers=0)) is not None


def log_of(model: int, cache: int, compute: int) -> str:
    """What llama.cpp says of these buffers, in MiB."""
    return f"""
0.00.008.906 I load_tensors:   CPU_Mapped model buffer size = {model:8}.00 MiB
0.00.009.024 I llama_kv_cache:        CPU KV buffer size = {cache:8}.00 MiB
0.00.009.908 I sched_reserve:        CPU compute buffer size = {compute:8}.00 MiB
"""


MIB = 1 << 20


def test_what_a_server_took_counts_in_place_of_the_estimate(host: Host) -> None:
    """The next start of the same configuration is judged by it, by another agent, too; others are not."""
    host.available = 4 * GB
    assert host.refuse(host.config) is None
    host.ran(host.config, log=log_of(5000, 200, 100))
    found = host.refuse(host.config)
    assert found is not None
    assert "needs 5.62 GB (as it took before); 3 GB are free" in found.message
    assert host.refuse(replace(host.config, context_tokens=8192)) is None


def test_a_server_that_took_less_leaves_room_for_others(host: Host) -> None:
    """What was estimated too high is not kept free for ever."""
    host.available = 2 * GB
    assert host.refuse(host.config) is not None
    host.ran(host.config, log=log_of(300, 200, 100))
    assert host.refuse(host.config) is None


def test_of_what_cannot_be_estimated_resident_memory_is_known_the_next_time(
    host: Host, tmp_path: Path
) -> None:
    """Of two findings the larger one counts, and none lowers an estimate."""
    folder = ServerConfig("mlx", str(tmp_path), "", runtime="mlx")
    assert host.refuse(folder) is None
    for resident in (14 * GB, 2 * GB):
        host.ran(folder, resident=resident)
    found = host.refuse(folder)
    assert found is not None
    assert "needs 14 GB (as it took before)" in found.message
    host.available = 2 * GB
    host.ran(host.config, resident=GB // 10)
    assert host.refuse(host.config) is not None


def test_both_figures_are_shown(host: Host) -> None:
    """Nothing before a server has been judged, the estimate then, and what it took once it has run."""
    assert host.agent.shown(None) == {"estimatedBytes": None, "allocatedBytes": None}
    assert asyncio.run(host.agent.refuse(host.config)) is None
    shown = host.agent.shown(host.config)
    assert shown["estimatedBytes"] > GB
    assert shown["allocatedBytes"] is None
    host.ran(host.config, log=log_of(1000, 200, 100))
    assert host.agent.shown(host.config) == {**shown, "allocatedBytes": 1300 * MIB + 64_000_000}


def test_an_estimate_that_was_too_low_is_told_once(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    """By a warning with both figures; the same finding again, and one that fits, are none."""
    for _ in range(3):
        host.ran(host.config, log=log_of(5000, 200, 100))
    host.ran(replace(host.config, context_tokens=8192), log=log_of(100, 200, 100))
    assert capsys.readouterr().out.count("model_memory_underestimated") == 1


def test_a_folder_is_judged_like_a_file(host: Host, tmp_path: Path) -> None:
    """Weights and the context of each slot of a model for MLX count, in the type that it computes with."""
    write_tiny_mlx(tmp_path / "tiny")
    config = ServerConfig("tiny", str(tmp_path / "tiny"), "", 32_768, 2, runtime="mlx")
    host.fraction = 1
    assert host.refuse(config) is None
    host.fraction = 0.001
    found = host.refuse(config)
    assert found is not None
    # Two slots, two layers, two heads of 16 whole floats, keys and values.
    assert "context 33.6 MB" in found.message

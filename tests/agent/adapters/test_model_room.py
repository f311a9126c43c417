"""Whether a host has memory for a server, with real files and made-up hosts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.adapters.model_room import ModelRoom
from journeyman.core.model_admission import Refusal
from journeyman.core.server_config import ServerConfig
from journeyman.core.worker_specs import Interpreter, model_server_spec
from journeyman.ports import Memory
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

    def refuse(self, config: ServerConfig) -> Refusal | None:
        room = ModelRoom(
            workers=self.workers,
            memory=lambda: Memory(16 * GB, self.available),
            kept_bytes=GB,
            reserved_bytes=lambda: self.promised,
            fraction=self.fraction,
            has_own_memory=lambda: self.has_own_memory,
        )
        return asyncio.run(room.refuse(config))

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

"""The runtimes that can be had on this host, each with a model that it serves at once."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.runtimes.mlx import UPSTREAM_MODEL
from journeyman.core.server_config import ServerConfig
from journeyman.ports import Endpoint
from tests.support.runtime_cache import cached_runtime
from tests.support.tiny_gguf import CONTEXT, TEMPLATE, write_tiny_gguf
from tests.support.tiny_mlx import write_tiny_mlx

RUNTIMES = ("native", "llama-server", "llama-cpp-python", "mlx")


@dataclass(frozen=True)
class Installed:
    """One runtime.

    Attributes:
        name: as the settings spell it.
        program: where its program is; empty for what the worker finds itself.
        model: what it serves.
        asks_for_key: whether it refuses who does not show the key.
        knows_its_context: whether it refuses what is longer; otherwise it takes as much as it is given.
        upstream_model: what it calls the model.
    """

    name: str
    program: str
    model: Path
    asks_for_key: bool = True
    knows_its_context: bool = True
    upstream_model: str = "tiny"

    def table(self) -> dict[str, Any]:
        """How the settings name it."""
        told = {"name": "tiny", "model": str(self.model), "runtime": self.name, "context_tokens": 512}
        return {**told, "program": self.program} if self.program else told

    @property
    def another_option(self) -> dict[str, Any]:
        """What makes another server of it."""
        return {"slots": 3} if self.name == "mlx" else {"threads": 2}

    def named(self, endpoint: Endpoint) -> Endpoint:
        """The same with the name that the server itself knows."""
        return replace(endpoint, model=self.upstream_model)

    def config(self, model: Path | None = None) -> ServerConfig:
        path = self.model if model is None else model
        parallel = 1 if self.name == "llama-cpp-python" else 2
        return ServerConfig(
            "tiny", str(path), "0f", context_tokens=512, parallel=parallel, threads=1,
            runtime=self.name, program=self.program,
        )  # fmt: skip


def installed_runtime(
    name: str, factory: pytest.TempPathFactory, *, template: str = TEMPLATE, context: int = CONTEXT
) -> Installed:
    """The runtime with its tiny model.  Skips the test where it cannot be had."""
    program = "" if name == "native" else _program(name)
    folder = factory.mktemp("runtime")
    if name == "mlx":
        write_tiny_mlx(folder / "tiny", template=template, context=context)
        return Installed(
            "mlx", program, folder / "tiny",
            asks_for_key=False, knows_its_context=False, upstream_model=UPSTREAM_MODEL,
        )  # fmt: skip
    write_tiny_gguf(folder / "tiny.gguf", template, context)
    return Installed(name, program, folder / "tiny.gguf")


def _program(name: str) -> str:
    on_path = {"llama-server": "llama-server", "mlx": "mlx_lm.server"}.get(name, "")
    found = cached_runtime(name) or (shutil.which(on_path) if on_path else "")
    if not found:
        pytest.skip(f"cannot run here: no {name}, which `scripts/test --full` fetches where it can be had")
    return found

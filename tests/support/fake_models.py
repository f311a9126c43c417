"""A model store and a probe without models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from journeyman.core.server_config import ServerConfig
from journeyman.errors import ModelError, ModelFault, WorkerError
from journeyman.model.model_file import ModelFile
from journeyman.ports import Endpoint, JsonObject
from journeyman_updater.contract import WorkerRecord


def model_file(name: str, *, sha256: str = "0f") -> ModelFile:
    return ModelFile(name, f"/models/{name}.gguf", sha256, 1, "test", "llama", 2048, has_chat_template=True)


class RoomForAll:
    """Implements `Room`: a host with memory for whatever comes."""

    async def refuse(self, config: ServerConfig) -> None:
        pass

    async def settled(self, record: WorkerRecord) -> None:
        pass

    def shown(self, config: ServerConfig | None) -> JsonObject:
        return {"estimatedBytes": None, "allocatedBytes": None}


async def nobody_waits() -> list[str]:
    """No request is ever held for a model that sleeps."""
    await asyncio.Event().wait()
    return []


class FakeModelStore:
    """Implements `ModelStore`.

    Attributes:
        stored: the models that are here, by name.
        obtainable: those that `obtain` brings, by name.
        error: while set, `obtain` raises it.
        obtained: what `obtain` was asked for, in order.
    """

    def __init__(self, *models: ModelFile) -> None:
        self.stored = {model.name: model for model in models}
        self.obtainable: dict[str, ModelFile] = {}
        self.error: Exception | None = None
        self.obtained: list[str] = []

    def models(self) -> list[ModelFile]:
        return [self.stored[name] for name in sorted(self.stored)]

    def find(self, wanted: str) -> ModelFile | None:
        return self.stored.get(wanted)

    def obtain(self, wanted: str, progress: Callable[[str], None], sha256: str = "") -> ModelFile:
        self.obtained.append(wanted)
        if self.error is not None:
            raise self.error
        if wanted not in {*self.stored, *self.obtainable}:
            raise ModelError(f"there is no model {wanted!r}")
        progress(f"fetching {wanted}")
        self.stored.setdefault(wanted, self.obtainable.get(wanted, model_file(wanted)))
        if sha256 and self.stored[wanted].sha256 != sha256:
            raise ModelError(f"{wanted} has another digest", fault=ModelFault.HASH_MISMATCH)
        return self.stored[wanted]

    def verify(self, name: str) -> ModelFile:
        if name not in self.stored:
            raise ModelError(f"model {name!r} is not here")
        return self.stored[name]


class FakeProbe:
    """Implements `InferenceProbe`.

    Attributes:
        silent: while true, no model generates.
        failures: how many more questions are lost.
        asked: the endpoint and model of each probe.
    """

    def __init__(self) -> None:
        self.silent = False
        self.failures = 0
        self.asked: list[tuple[Endpoint, str]] = []

    async def prove(self, endpoint: Endpoint, model: str, mode: str = "chat") -> None:
        self.asked.append((endpoint, model))
        if self.failures:
            self.failures -= 1
            raise WorkerError("no answer from the model server")
        if self.silent:
            raise WorkerError("the model server answered without a token")

"""Models, their files and the servers that answer with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from journeyman.model.model_file import ModelFile


@dataclass(frozen=True)
class Endpoint:
    """Where a model answers: the URL of its OpenAI-compatible API, its key, and what it calls the model."""

    base_url: str
    api_key: bytes = field(repr=False)
    model: str = ""


class InferenceProbe(Protocol):
    """Whether a model server really generates; a port that is open or a `/health` of 200 proves nothing."""

    async def prove(self, endpoint: Endpoint, model: str, mode: str = "chat") -> None:
        """Returns once the model has generated one token, or done what else its mode says.

        Bounded by the probe's timeout.  Raises WorkerError with the reason if it did not, also for a
        wrong key.
        """
        ...


class ModelStore(Protocol):
    """The models on this host.

    What is asked for is a name, or the path of a GGUF file (it has a `/` in it, or ends in `.gguf`).
    """

    def models(self) -> list[ModelFile]:
        """All models whose files are there, by name."""
        ...

    def find(self, wanted: str) -> ModelFile | None:
        """The model, if it is stored and its file has not changed since.  Reads no weights."""
        ...

    def obtain(self, wanted: str, progress: Callable[[str], None], sha256: str = "") -> ModelFile:
        """Finds the model, or takes the user's file where it lies, or fetches one of the catalogue.

        Blocks for as long as downloading and hashing take; `progress` gets one line at each stage.  What
        was fetched is verified before it is stored, and stored in one step.  Raises ModelError if there is
        no such model, it is damaged, or has another digest than `sha256`, where that is not empty; and
        HostError if it could not be fetched or kept; then nothing was stored.
        """
        ...

    def verify(self, name: str) -> ModelFile:
        """Reads the whole file and compares its digest.  Raises ModelError if it differs, or is not here."""
        ...

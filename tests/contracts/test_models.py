"""The contracts of `ModelStore` and `InferenceProbe`, for the real adapters and for the fakes alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from journeyman.adapters.inference_probe import HttpInferenceProbe
from journeyman.adapters.model_store import FileModelStore
from journeyman.errors import ModelError, WorkerError
from journeyman.ports import Endpoint, InferenceProbe, ModelStore
from tests.support.fake_models import FakeModelStore, FakeProbe, model_file
from tests.support.scripted_server import answering, plain


def quiet(line: str) -> None:
    pass


class Shelf(Protocol):
    """A store without models, and one that can be obtained."""

    store: ModelStore
    wanted: str


class FakeShelf:
    def __init__(self) -> None:
        fake = FakeModelStore()
        self.wanted = "smol"
        fake.obtainable = {"smol": model_file("smol")}
        self.store: ModelStore = fake


class FileShelf:
    def __init__(self, folder: Path, model: Path) -> None:
        self.store: ModelStore = FileModelStore(folder / "models", cache=folder / "cache", catalogue={})
        self.wanted = str(model)


@pytest.fixture(params=["fake", "files"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path, tiny_model: Path) -> Shelf:
    return FakeShelf() if request.param == "fake" else FileShelf(tmp_path, tiny_model)


def test_what_was_obtained_is_found(shelf: Shelf) -> None:
    """A model is found, listed and verified after it was obtained, and not before."""
    assert shelf.store.find(shelf.wanted) is None
    assert shelf.store.models() == []
    model = shelf.store.obtain(shelf.wanted, quiet)
    assert shelf.store.find(shelf.wanted) == model
    assert shelf.store.find(model.name) == model
    assert shelf.store.models() == [model]
    assert shelf.store.verify(model.name) == model
    assert shelf.store.obtain(shelf.wanted, quiet) == model


def test_a_model_that_nobody_has_is_a_model_error(shelf: Shelf) -> None:
    """Neither obtaining nor verifying invents a model."""
    with pytest.raises(ModelError):
        shelf.store.obtain("nobody-has-it", quiet)
    with pytest.raises(ModelError):
        shelf.store.verify("nobody-has-it")
    assert shelf.store.models() == []


Surroundings = Callable[[int], AbstractAsyncContextManager[tuple[InferenceProbe, Endpoint]]]


@asynccontextmanager
async def fake_surroundings(tokens: int) -> AsyncIterator[tuple[InferenceProbe, Endpoint]]:
    probe = FakeProbe()
    probe.silent = tokens == 0
    yield probe, Endpoint("http://127.0.0.1:1/v1", b"k")


@asynccontextmanager
async def http_surroundings(tokens: int) -> AsyncIterator[tuple[InferenceProbe, Endpoint]]:
    answer = {"choices": [{"message": {"content": ""}}], "usage": {"completion_tokens": tokens}}
    async with answering([plain("200 OK", json.dumps(answer).encode())]) as server:
        yield HttpInferenceProbe(timeout_seconds=10), Endpoint(server.base_url, b"k")


@pytest.fixture(params=[fake_surroundings, http_surroundings])
def surroundings(request: pytest.FixtureRequest) -> Surroundings:
    chosen: Surroundings = request.param
    return chosen


def test_a_token_is_proof(surroundings: Surroundings) -> None:
    """A model that generates is proven, even if its token has no text."""

    async def scenario() -> None:
        async with surroundings(1) as (probe, endpoint):
            await probe.prove(endpoint, "smol")

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_silence_is_no_proof(surroundings: Surroundings) -> None:
    """An answer without a token is an error that says so."""

    async def scenario() -> None:
        async with surroundings(0) as (probe, endpoint):
            with pytest.raises(WorkerError, match="without a token"):
                await probe.prove(endpoint, "smol")

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"choices": [], "usage": {}}', b'{"choices": [1]}'])
def test_what_is_no_answer_is_no_proof(body: bytes) -> None:
    """Whatever a server says with 200, only counted tokens prove it."""

    async def scenario() -> None:
        async with answering([plain("200 OK", body)]) as server:
            with pytest.raises(WorkerError, match="without a token"):
                await HttpInferenceProbe(timeout_seconds=10).prove(Endpoint(server.base_url, b"k"), "smol")

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_server_that_hangs_is_given_up() -> None:
    """The probe's timeout ends the wait for a server that accepts and never answers."""

    async def scenario() -> None:
        async with answering([], hang=True) as server:
            with pytest.raises(WorkerError, match="ReadTimeout"):
                await HttpInferenceProbe(timeout_seconds=0.1).prove(Endpoint(server.base_url, b"k"), "smol")

    asyncio.run(asyncio.wait_for(scenario(), 20))

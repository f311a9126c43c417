"""Model files of any size: a tiny model with weights that nobody reads behind it."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

from journeyman.adapters.model_download import DownloadRules, ModelDownloader
from journeyman.adapters.model_store import FileModelStore
from journeyman.core.gates.marks import DiskMarks
from journeyman_updater.contract.http_rules import RetryPolicy

# Tests run on small disks.
NO_RESERVE = DiskMarks(reserve_percent=0, reserve_min_bytes=0)


@dataclass(frozen=True)
class BigModel:
    """A file and its digest."""

    body: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest()


def big_model(tiny: Path, size: int, *, seed: int = 7) -> BigModel:
    """A valid model of that size; other seeds are other models."""
    body, source = bytearray(tiny.read_bytes()), random.Random(seed)
    while len(body) < size:
        # No more can be had at a time.
        body += source.randbytes(min(size - len(body), 1 << 26))
    return BigModel(bytes(body))


def store_in(
    folder: Path,
    *,
    hub_url: str = "http://127.0.0.1:1",
    token_file: Path | None = None,
    disk: DiskMarks = NO_RESERVE,
) -> FileModelStore:
    """A store that loses no time between two tries."""
    rules = DownloadRules(
        hub_url=hub_url, hub_token_file=token_file, stall_seconds=20, retry=RetryPolicy(attempts=3)
    )
    downloader = ModelDownloader(rules, pause=lambda seconds: None)
    return FileModelStore(folder / "models", cache=folder / "cache", downloader=downloader, disk=disk)

